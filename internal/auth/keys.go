package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"github.com/golang-jwt/jwt/v5"
)

// The algorithms of keys. HS256 is that of secrets, the others those of key
// pairs: RSA, ECDSA on P-256 and Ed25519.
const (
	HS256 = "HS256"
	RS256 = "RS256"
	ES256 = "ES256"
	EdDSA = "EdDSA"
)

// methods are the algorithms with the library's name for each: a token of
// another one meets no key.
var methods = map[string]jwt.SigningMethod{
	HS256: jwt.SigningMethodHS256, RS256: jwt.SigningMethodRS256, ES256: jwt.SigningMethodES256, EdDSA: jwt.SigningMethodEdDSA,
}

const (
	minSecret = 32  // bytes
	maxKeyID  = 128 // bytes of a kid
	maxKeys   = 16  // of one set: a token without a kid is tried against each

	// A larger RSA key makes each token expensive to check, a smaller one can
	// be broken.
	minRSA, maxRSA = 2048, 8192 // bits
)

// Key is one key, pinned to its algorithm. It prints as its id and algorithm,
// never as its secret. The zero value is no key.
type Key struct {
	id, alg string
	// issuer is the only one whose tokens the key is good for; "" is the
	// verifier's.
	issuer string
	// check is what a signature is checked with: a secret's bytes or a public
	// key. sign is nil for a public key.
	check, sign sealed[any]
	// sum is what is the same of two keys if they are.
	sum sealed[[sha256.Size]byte]
}

// NewKey makes an HS256 key of a secret, which it copies. The secret has at
// least 32 bytes and must not look like a key of another kind; see
// LoadKeyFiles.
func NewKey(id string, secret []byte) (Key, error) {
	if err := checkKeyID(id); err != nil {
		return Key{}, err
	}
	if err := checkSecret(secret); err != nil {
		return Key{}, err
	}
	held := seal[any](slices.Clone(secret))
	return Key{id: id, alg: HS256, check: held, sign: held, sum: seal(sha256.Sum256(secret))}, nil
}

// NewSigner makes a key of a key pair, which also signs. The algorithm follows
// from its type: see NewPublicKey.
func NewSigner(id string, private crypto.Signer) (Key, error) {
	k, err := NewPublicKey(id, private.Public())
	if err == nil {
		k.sign = seal[any](private)
	}
	return k, err
}

// NewPublicKey makes a key that checks signatures: RS256 of an *rsa.PublicKey of
// 2048 to 8192 bits, ES256 of an *ecdsa.PublicKey on P-256, EdDSA of an
// ed25519.PublicKey.
func NewPublicKey(id string, public crypto.PublicKey) (Key, error) {
	if err := checkKeyID(id); err != nil {
		return Key{}, err
	}
	k := Key{id: id, check: seal[any](public)}
	switch p := public.(type) {
	case *rsa.PublicKey:
		bits := p.N.BitLen()
		if bits < minRSA || bits > maxRSA || p.E < 3 || p.E&1 == 0 {
			return Key{}, fmt.Errorf("%w: RSA keys have %d to %d bits and an odd exponent, this one has %d and %d", ErrKeyAlgorithm, minRSA, maxRSA, bits, p.E)
		}
		k.alg = RS256
	case *ecdsa.PublicKey:
		if p.Curve != elliptic.P256() {
			return Key{}, fmt.Errorf("%w: of the elliptic curves only P-256 is taken", ErrKeyAlgorithm)
		}
		k.alg = ES256
	case ed25519.PublicKey:
		if len(p) != ed25519.PublicKeySize {
			return Key{}, fmt.Errorf("%w: an Ed25519 key has %d bytes", ErrKeyAlgorithm, ed25519.PublicKeySize)
		}
		k.alg = EdDSA
	default:
		return Key{}, ErrKeyAlgorithm
	}
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		return Key{}, ErrKeyAlgorithm
	}
	k.sum = seal(sha256.Sum256(der))
	return k, nil
}

func checkKeyID(id string) error {
	if id == "" || len(id) > maxKeyID {
		return fmt.Errorf("%w: the key id must have 1 to %d bytes", ErrKeyFile, maxKeyID)
	}
	return nil
}

// ID is the kid that tokens name the key by.
func (k Key) ID() string { return k.id }

// Algorithm is the one algorithm that the key is used with.
func (k Key) Algorithm() string { return k.alg }

// Signs reports whether the key can sign tokens: a public key cannot.
func (k Key) Signs() bool { return k.sign.value() != nil }

// String implements fmt.Stringer without the secret.
func (k Key) String() string { return fmt.Sprintf("%s key %q", k.alg, k.id) }

// GoString keeps the secret out of %#v as well.
func (k Key) GoString() string { return k.String() }

// KeySource gives a Verifier its keys. It is safe for concurrent use.
type KeySource interface {
	// Lookup gives the keys that may have signed a token which names this kid,
	// or, unnamed, one that names none. No such key is ErrUnknownKey; that the
	// keys cannot be had at present ErrKeysAway. It may wait for keys, within
	// bounds of its own and of the context.
	Lookup(ctx context.Context, kid string, named bool) ([]Key, error)
	// Holds says whether a key that Lookup has given is still a good one; a key
	// of another source is none. It never waits; while nobody can know, it is.
	Holds(k Key) bool
}

// Keys is a set of keys by id. It is immutable and safe for concurrent use.
type Keys struct {
	list []Key
	byID map[string]Key
}

var _ KeySource = (*Keys)(nil)

// NewKeys makes a set of 1 to 16 keys with different ids.
func NewKeys(keys ...Key) (*Keys, error) {
	if len(keys) == 0 {
		return nil, fmt.Errorf("%w: a key set holds 1 to %d keys, not 0", ErrKeyFile, maxKeys)
	}
	return newKeys(keys, maxKeys)
}

// newKeys is NewKeys for a set that may also be empty.
func newKeys(keys []Key, most int) (*Keys, error) {
	if len(keys) > most {
		return nil, fmt.Errorf("%w: a key set holds 1 to %d keys, not %d", ErrKeyFile, most, len(keys))
	}
	set := &Keys{list: slices.Clone(keys), byID: make(map[string]Key, len(keys))}
	for _, k := range keys {
		if k.alg == "" {
			return nil, fmt.Errorf("%w: a key without an algorithm", ErrKeyFile)
		}
		if _, twice := set.byID[k.id]; twice {
			return nil, fmt.Errorf("%w: two keys have the id %q", ErrKeyFile, k.id)
		}
		set.byID[k.id] = k
	}
	return set, nil
}

// Lookup implements KeySource. It never waits.
func (s *Keys) Lookup(_ context.Context, kid string, named bool) ([]Key, error) {
	if !named {
		if len(s.list) == 0 {
			return nil, ErrUnknownKey
		}
		return s.list, nil
	}
	k, ok := s.byID[kid]
	if !ok {
		return nil, ErrUnknownKey
	}
	return []Key{k}, nil
}

// Holds implements KeySource.
func (s *Keys) Holds(k Key) bool {
	is, there := s.byID[k.id]
	return there && is.alg == k.alg && is.issuer == k.issuer && is.sum.value() == k.sum.value()
}

// same says whether two sets hold the same keys.
func (s *Keys) same(other *Keys) bool {
	return len(s.list) == len(other.list) && !slices.ContainsFunc(s.list, func(k Key) bool { return !other.Holds(k) })
}

// First is the key that was given first.
func (s *Keys) First() Key { return s.list[0] }

// Signer is the first key that can sign tokens. If none can, all being public,
// the error wraps ErrCannotSign.
func (s *Keys) Signer() (Key, error) {
	for _, k := range s.list {
		if k.Signs() {
			return k, nil
		}
	}
	return Key{}, ErrCannotSign
}

// String lists the keys without their secrets.
func (s *Keys) String() string { return fmt.Sprint(s.list) }

// GoString keeps the secrets out of %#v as well.
func (s *Keys) GoString() string { return s.String() }

// Len is the number of keys.
func (s *Keys) Len() int { return len(s.list) }

// Sources are several sources of keys as one: a kid is looked for in each, in
// their order.
type Sources []KeySource

var _ KeySource = Sources(nil)

// Lookup implements KeySource. A kid belongs to the first source that has it; a
// token without one may be of any.
func (s Sources) Lookup(ctx context.Context, kid string, named bool) ([]Key, error) {
	var all []Key
	err := ErrUnknownKey
	for _, source := range s {
		keys, sourceErr := source.Lookup(ctx, kid, named)
		switch {
		case sourceErr != nil:
			if errors.Is(err, ErrUnknownKey) {
				err = sourceErr
			}
		case named:
			return keys, nil
		default:
			all = append(all, keys...)
		}
	}
	if len(all) == 0 {
		return nil, err
	}
	return all, nil
}

// Holds implements KeySource.
func (s Sources) Holds(k Key) bool {
	return slices.ContainsFunc(s, func(source KeySource) bool { return source.Holds(k) })
}
