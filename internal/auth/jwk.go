package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
)

const (
	maxJWKEntries = 100 // of one document
	maxJWKSKeys   = 32  // of those, keys that can be used
)

// jwk is an entry of a JSON Web Key Set.
type jwk struct {
	Type       string   `json:"kty"`
	Use        string   `json:"use"`
	Operations []string `json:"key_ops"`
	Algorithm  string   `json:"alg"`
	ID         string   `json:"kid"`
	Curve      string   `json:"crv"`
	N          string   `json:"n"`
	E          string   `json:"e"`
	X          string   `json:"x"`
	Y          string   `json:"y"`
	Secret     string   `json:"k"` // of a symmetric key
	Private    string   `json:"d"` // of a key pair
}

// errForeign is an entry that is meant for something else.
var errForeign = errors.New("it is not for RS256, ES256 or EdDSA signatures")

// parseJWKS reads a set of public keys. Entries for other purposes are left out
// silently; problems tells of those that are left out for what is wrong with
// them. A set in which no usable key is left is an error.
func parseJWKS(document []byte) (keys []Key, problems []string, err error) {
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(document, &set) != nil || set.Keys == nil {
		return nil, nil, errors.New("it is not a JSON Web Key Set")
	}
	if len(set.Keys) > maxJWKEntries {
		return nil, nil, fmt.Errorf("it holds %d keys; at most %d are read", len(set.Keys), maxJWKEntries)
	}
	count := map[string]int{}
	for i, raw := range set.Keys {
		var entry jwk
		if json.Unmarshal(raw, &entry) != nil {
			problems = append(problems, fmt.Sprintf("entry %d is not a JSON Web Key", i+1))
			continue
		}
		k, err := entry.key()
		switch {
		case errors.Is(err, errForeign):
		case err != nil:
			problems = append(problems, fmt.Sprintf("entry %d, %.64q: %v", i+1, entry.ID, err))
		default:
			keys = append(keys, k)
			count[k.id]++
		}
	}
	keys = slices.DeleteFunc(keys, func(k Key) bool { return count[k.id] > 1 })
	for id, n := range count {
		if n > 1 {
			problems = append(problems, fmt.Sprintf("%d keys have the id %.64q, of which none is accepted", n, id))
		}
	}
	slices.Sort(problems)
	switch {
	case len(keys) > maxJWKSKeys:
		return nil, problems, fmt.Errorf("it holds %d usable keys; at most %d are taken", len(keys), maxJWKSKeys)
	case len(keys) == 0 && len(problems) > 0:
		return nil, problems, fmt.Errorf("it holds no usable key: %s", problems[0])
	case len(keys) == 0:
		return nil, problems, errors.New("it holds no usable key")
	}
	return keys, problems, nil
}

// key makes a key of the entry. Its algorithm follows from its type, and an
// `alg` that says otherwise makes it a key for something else.
func (j *jwk) key() (Key, error) {
	if j.Type == "oct" || j.Secret != "" || j.Private != "" {
		return Key{}, errors.New("it is a secret, which everybody can read there; it is not accepted")
	}
	if j.Use != "" && j.Use != "sig" || j.Operations != nil && !slices.Contains(j.Operations, "verify") {
		return Key{}, errForeign
	}
	var (
		public any
		print  string
		err    error
	)
	switch {
	case j.Type == "RSA" && (j.Algorithm == "" || j.Algorithm == RS256):
		public, print, err = j.rsa()
	case j.Type == "EC" && j.Curve == "P-256" && (j.Algorithm == "" || j.Algorithm == ES256):
		public, print, err = j.ecdsa()
	case j.Type == "OKP" && j.Curve == "Ed25519" && (j.Algorithm == "" || j.Algorithm == EdDSA || j.Algorithm == "Ed25519"):
		public, print, err = j.ed25519()
	default:
		return Key{}, errForeign
	}
	if err != nil {
		return Key{}, err
	}
	id := j.ID
	if id == "" {
		id = print
	}
	return NewPublicKey(id, public)
}

var errMember = errors.New("its numbers are not those of a key of its type")

func member(text string, most int) ([]byte, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) == 0 || len(b) > most {
		return nil, errMember
	}
	return b, nil
}

func (j *jwk) rsa() (public any, print string, err error) {
	n, err := member(j.N, maxRSA/8+1)
	if err != nil {
		return nil, "", err
	}
	e, err := member(j.E, 4)
	if err != nil {
		return nil, "", err
	}
	exponent := new(big.Int).SetBytes(e).Int64()
	if exponent > 1<<31-1 {
		return nil, "", errMember
	}
	p := &rsa.PublicKey{N: new(big.Int).SetBytes(n), E: int(exponent)}
	return p, thumbprint(`{"e":%q,"kty":"RSA","n":%q}`, new(big.Int).SetBytes(e).Bytes(), p.N.Bytes()), nil
}

func (j *jwk) ecdsa() (public any, print string, err error) {
	const size = 32
	x, err := member(j.X, size)
	if err != nil {
		return nil, "", err
	}
	y, err := member(j.Y, size)
	if err != nil || len(x) != size || len(y) != size {
		return nil, "", errMember
	}
	p, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), append(append([]byte{4}, x...), y...))
	if err != nil { // not a point of the curve
		return nil, "", errMember
	}
	return p, thumbprint(`{"crv":"P-256","kty":"EC","x":%q,"y":%q}`, x, y), nil
}

func (j *jwk) ed25519() (public any, print string, err error) {
	x, err := member(j.X, ed25519.PublicKeySize)
	if err != nil || len(x) != ed25519.PublicKeySize {
		return nil, "", errMember
	}
	return ed25519.PublicKey(x), thumbprint(`{"crv":"Ed25519","kty":"OKP","x":%q}`, x), nil
}

// thumbprint is the name that RFC 7638 gives to a key that has none.
func thumbprint(format string, members ...[]byte) string {
	texts := make([]any, len(members))
	for i, m := range members {
		texts[i] = base64.RawURLEncoding.EncodeToString(m)
	}
	sum := sha256.Sum256([]byte(fmt.Sprintf(format, texts...)))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}
