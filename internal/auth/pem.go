package auth

import (
	"bytes"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"fmt"
)

// parsePEM makes a key of PEM with one public or private key. What stands around
// it, and the parameters that some tools write before an elliptic key, is left
// alone.
func parsePEM(id string, content []byte) (Key, error) {
	var found *pem.Block
	rest := content
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type == "EC PARAMETERS" {
			continue
		}
		if found != nil {
			return Key{}, fmt.Errorf("%w: it holds several PEM blocks; write one key into a file", ErrKeyFile)
		}
		found = block
	}
	switch {
	case found == nil && bytes.Contains(content, []byte("-----BEGIN")), bytes.Contains(rest, []byte("-----BEGIN")):
		return Key{}, fmt.Errorf("%w: its PEM is damaged", ErrKeyFile)
	case found == nil:
		return Key{}, fmt.Errorf("%w: it is not PEM; if it holds an HS256 secret, name it *%s or write HS256: before its path", ErrKeyFile, secretExt)
	case found.Headers["DEK-Info"] != "":
		return Key{}, fmt.Errorf("%w: it is encrypted by a passphrase, which the gateway does not have", ErrKeyFile)
	}
	switch found.Type {
	case "PUBLIC KEY":
		return publicKey(id, found.Bytes, x509.ParsePKIXPublicKey)
	case "RSA PUBLIC KEY":
		return publicKey(id, found.Bytes, func(der []byte) (any, error) { return x509.ParsePKCS1PublicKey(der) })
	case "PRIVATE KEY":
		return privateKey(id, found.Bytes, x509.ParsePKCS8PrivateKey)
	case "RSA PRIVATE KEY":
		return privateKey(id, found.Bytes, func(der []byte) (any, error) { return x509.ParsePKCS1PrivateKey(der) })
	case "EC PRIVATE KEY":
		return privateKey(id, found.Bytes, func(der []byte) (any, error) { return x509.ParseECPrivateKey(der) })
	case "ENCRYPTED PRIVATE KEY":
		return Key{}, fmt.Errorf("%w: it is encrypted by a passphrase, which the gateway does not have", ErrKeyFile)
	case "CERTIFICATE":
		return Key{}, fmt.Errorf("%w: it is a certificate, whose key is taken from `openssl x509 -pubkey -noout`", ErrKeyFile)
	}
	return Key{}, fmt.Errorf("%w: its PEM block is neither a public nor a private key", ErrKeyFile)
}

func publicKey(id string, der []byte, parse func([]byte) (any, error)) (Key, error) {
	public, err := parse(der)
	if err != nil {
		return Key{}, fmt.Errorf("%w: its public key cannot be parsed", ErrKeyFile)
	}
	return NewPublicKey(id, public)
}

func privateKey(id string, der []byte, parse func([]byte) (any, error)) (Key, error) {
	private, err := parse(der)
	if err != nil { // the reason may show parts of the key
		return Key{}, fmt.Errorf("%w: its private key cannot be parsed", ErrKeyFile)
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return Key{}, ErrKeyAlgorithm
	}
	return NewSigner(id, signer)
}
