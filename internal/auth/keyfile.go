package auth

import (
	"bytes"
	"crypto/rand"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// KeyFile names a key file.
type KeyFile struct {
	Path string
	// ID is the kid; "" takes the file's name without its extension.
	ID string
	// Algorithm says what the file holds where its name does not: HS256 makes it
	// a secret. "" goes by the name.
	Algorithm string
}

const (
	secretExt  = ".hs256"
	maxKeyFile = 64 << 10 // bytes; a larger file is not a key
)

// LoadKeyFiles is LoadKeys for files that need no options.
func LoadKeyFiles(paths ...string) (*Keys, error) {
	files := make([]KeyFile, len(paths))
	for i, p := range paths {
		files[i].Path = p
	}
	return LoadKeys(files...)
}

// LoadKeys reads key files into a set, in their order. A file named *.hs256, or
// with the option HS256, holds the bytes of a secret, at least 32; one trailing
// newline is not part of it. A secret that contains BEGIN, or parses as DER or
// JSON, is refused: who knows the public key of a pair must never thereby know
// an HMAC secret. Any other file must be PEM; its algorithms are not supported
// yet. All files are read, and all problems reported at once; an error wraps
// ErrKeyFile or ErrKeyAlgorithm and shows nothing of a file's content.
func LoadKeys(files ...KeyFile) (*Keys, error) {
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: no key file is named", ErrKeyFile)
	}
	var (
		keys     []Key
		problems []error
	)
	for _, f := range files {
		k, err := loadKey(f)
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", f.Path, err))
			continue
		}
		keys = append(keys, k)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return NewKeys(keys...)
}

func loadKey(f KeyFile) (Key, error) {
	content, err := readKeyFile(f.Path)
	if err != nil {
		return Key{}, fmt.Errorf("%w: %w", ErrKeyFile, err)
	}
	id := f.ID
	if id == "" {
		name := filepath.Base(f.Path)
		if id = strings.TrimSuffix(name, filepath.Ext(name)); id == "" {
			id = name
		}
	}
	switch {
	case f.Algorithm == HS256, f.Algorithm == "" && filepath.Ext(f.Path) == secretExt:
		return NewKey(id, bytes.TrimSuffix(content, []byte("\n")))
	case f.Algorithm != "":
		return Key{}, ErrKeyAlgorithm
	}
	if block, _ := pem.Decode(content); block != nil {
		return Key{}, ErrKeyAlgorithm
	}
	return Key{}, fmt.Errorf("%w: if it holds an HS256 secret, name it *%s or write HS256: before its path; other kinds of key are not supported yet", ErrKeyFile, secretExt)
}

func readKeyFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		// The path stands before this error already.
		if pe, ok := errors.AsType[*os.PathError](err); ok {
			return nil, pe.Err
		}
		return nil, err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err != nil {
		return nil, err
	}
	if len(content) > maxKeyFile {
		return nil, fmt.Errorf("it is larger than %d KiB", maxKeyFile>>10)
	}
	return content, nil
}

// checkSecret refuses what is too short for a secret, or looks like a key that
// others may know.
func checkSecret(secret []byte) error {
	switch {
	case len(secret) < minSecret:
		return fmt.Errorf("%w: a secret has at least %d bytes, this one has %d", ErrKeyFile, minSecret, len(secret))
	case bytes.Contains(secret, []byte("BEGIN")):
		return fmt.Errorf("%w: it contains BEGIN and looks like PEM, not like a secret", ErrKeyFile)
	case isDER(secret):
		return fmt.Errorf("%w: it parses as DER and looks like a key or a certificate, not like a secret", ErrKeyFile)
	case json.Valid(bytes.TrimPrefix(secret, []byte("\ufeff"))):
		return fmt.Errorf("%w: it parses as JSON and looks like a JWK, not like a secret", ErrKeyFile)
	case isEncodedDER(secret):
		return fmt.Errorf("%w: it is DER in base64 and looks like a key or a certificate, not like a secret", ErrKeyFile)
	case bytes.HasPrefix(secret, []byte("ssh-")), bytes.HasPrefix(secret, []byte("ecdsa-sha2-")):
		return fmt.Errorf("%w: it looks like an SSH public key, not like a secret", ErrKeyFile)
	}
	return nil
}

// isDER reports whether b is one ASN.1 sequence of elements, as keys and
// certificates are. Of random bytes that is true once in many millions, while
// the outermost element alone would fit one secret in 256.
func isDER(b []byte) bool {
	var outer asn1.RawValue
	rest, err := asn1.Unmarshal(b, &outer)
	if err != nil || len(bytes.TrimSpace(rest)) > 0 || outer.Tag != asn1.TagSequence || !outer.IsCompound || len(outer.Bytes) == 0 {
		return false
	}
	for inner := outer.Bytes; len(inner) > 0; {
		var element asn1.RawValue
		if inner, err = asn1.Unmarshal(inner, &element); err != nil {
			return false
		}
	}
	return true
}

// isEncodedDER is isDER for the base64 text inside a PEM file whose frame was
// cut off.
func isEncodedDER(b []byte) bool {
	text := strings.Join(strings.Fields(string(b)), "")
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if raw, err := encoding.DecodeString(text); err == nil && isDER(raw) {
			return true
		}
	}
	return false
}

// CreateKeyFile writes a new random secret to a file of mode 0600 that must not
// exist yet; the name ends in .hs256. The file appears whole or not at all.
// Where it exists already, the error is one for errors.Is(err, fs.ErrExist) and
// the file is not touched.
func CreateKeyFile(path string) (err error) {
	if filepath.Ext(path) != secretExt {
		return fmt.Errorf("%w: %s: the name of a secret ends in %s", ErrKeyFile, path, secretExt)
	}
	secret := make([]byte, minSecret)
	_, _ = rand.Read(secret) // never fails
	// CreateTemp makes the file with mode 0600.
	temp, err := os.CreateTemp(filepath.Dir(path), ".key-*")
	if err != nil {
		return fmt.Errorf("creating a key file: %w", err)
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	_, err = temp.WriteString(hex.EncodeToString(secret) + "\n")
	if err == nil {
		err = temp.Sync()
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Link(temp.Name(), path) // unlike a rename, it replaces nothing
	}
	if err != nil {
		return fmt.Errorf("creating a key file: %w", err)
	}
	return nil
}
