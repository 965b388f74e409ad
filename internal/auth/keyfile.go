package auth

import (
	"bytes"
	"crypto/rand"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// KeyFile names a key file, or a directory of them.
type KeyFile struct {
	Path string
	// ID is the kid; "" takes the file's name without its extension. A directory
	// has none.
	ID string
	// Algorithm is what the key must be of, "" for any. HS256 makes a file a
	// secret whose name does not say so.
	Algorithm string
}

const (
	secretExt  = ".hs256"
	pemExt     = ".pem"
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
// an HMAC secret. Any other file is PEM with one public or private key, whose
// type is its algorithm: RSA is RS256, P-256 is ES256, Ed25519 is EdDSA.
//
// Of a directory the files *.hs256 and *.pem are read, by their names' order.
// All files are read, and all problems reported at once; an error wraps
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
		found, err := expand(f)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("%w: the directory holds no file *%s or *%s", ErrKeyFile, pemExt, secretExt)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", f.Path, err))
		}
		for _, one := range found {
			k, err := loadKey(one)
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", one.Path, err))
				continue
			}
			keys = append(keys, k)
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return NewKeys(keys...)
}

// expand gives the files of a directory, or the file itself.
func expand(f KeyFile) ([]KeyFile, error) {
	if !isDirectory(f.Path) {
		return []KeyFile{f}, nil
	}
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrKeyFile, withoutPath(err))
	}
	var files []KeyFile
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		if ext != secretExt && ext != pemExt || strings.HasPrefix(e.Name(), ".") {
			continue
		}
		// One more is enough to find that there are too many.
		if files = append(files, KeyFile{Path: filepath.Join(f.Path, e.Name()), Algorithm: f.Algorithm}); len(files) > maxKeys {
			break
		}
	}
	return files, nil
}

// isDirectory says whether a path is one. What is wrong with a file is found when
// it is read.
func isDirectory(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

func loadKey(f KeyFile) (Key, error) {
	content, err := readKeyFile(f.Path)
	if err != nil {
		return Key{}, fmt.Errorf("%w: %w", ErrKeyFile, err)
	}
	return f.parse(content)
}

// parse makes a key of the file's content.
func (f *KeyFile) parse(content []byte) (Key, error) {
	id := f.ID
	if id == "" {
		name := filepath.Base(f.Path)
		if id = strings.TrimSuffix(name, filepath.Ext(name)); id == "" {
			id = name
		}
	}
	switch _, known := methods[f.Algorithm]; {
	case f.Algorithm != "" && !known:
		return Key{}, ErrKeyAlgorithm
	case f.Algorithm == HS256, f.Algorithm == "" && filepath.Ext(f.Path) == secretExt:
		return NewKey(id, bytes.TrimSuffix(content, []byte("\n")))
	}
	k, err := parsePEM(id, content)
	if err == nil && f.Algorithm != "" && k.alg != f.Algorithm {
		return Key{}, fmt.Errorf("%w: it holds a key for %s, not for %s", ErrKeyFile, k.alg, f.Algorithm)
	}
	return k, err
}

func readKeyFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	if err != nil {
		return nil, withoutPath(err)
	}
	if len(content) > maxKeyFile {
		return nil, fmt.Errorf("it is larger than %d KiB", maxKeyFile>>10)
	}
	return content, nil
}

// withoutPath is for where the path stands before the error already.
func withoutPath(err error) error {
	if pe, ok := errors.AsType[*os.PathError](err); ok {
		return pe.Err
	}
	return err
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
