package auth

import (
	"fmt"
	"slices"
)

// HS256 is the algorithm of keys that are secrets.
const HS256 = "HS256"

const (
	minSecret = 32  // bytes
	maxKeyID  = 128 // bytes of a kid
	maxKeys   = 16  // of one set: a token without a kid is tried against each
)

// Key is one key, pinned to its algorithm. It prints as its id and algorithm,
// never as its secret. The zero value is no key.
type Key struct {
	id, alg string
	secret  sealed
}

// NewKey makes an HS256 key of a secret, which it copies. The secret has at
// least 32 bytes and must not look like a key of another kind; see
// LoadKeyFiles.
func NewKey(id string, secret []byte) (Key, error) {
	if id == "" || len(id) > maxKeyID {
		return Key{}, fmt.Errorf("%w: the key id must have 1 to %d bytes", ErrKeyFile, maxKeyID)
	}
	if err := checkSecret(secret); err != nil {
		return Key{}, err
	}
	return Key{id: id, alg: HS256, secret: seal(string(secret))}, nil
}

// ID is the kid that tokens name the key by.
func (k Key) ID() string { return k.id }

// Algorithm is the one algorithm that the key is used with.
func (k Key) Algorithm() string { return k.alg }

// String implements fmt.Stringer without the secret.
func (k Key) String() string { return fmt.Sprintf("%s key %q", k.alg, k.id) }

// GoString keeps the secret out of %#v as well.
func (k Key) GoString() string { return k.String() }

// Keys is a set of keys by id. It is immutable and safe for concurrent use.
type Keys struct {
	list []Key
	byID map[string]Key
}

// NewKeys makes a set of 1 to 16 keys with different ids.
func NewKeys(keys ...Key) (*Keys, error) {
	if len(keys) == 0 || len(keys) > maxKeys {
		return nil, fmt.Errorf("%w: a key set holds 1 to %d keys, not %d", ErrKeyFile, maxKeys, len(keys))
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

// First is the key that was given first: the one to sign with.
func (s *Keys) First() Key { return s.list[0] }

// String lists the keys without their secrets.
func (s *Keys) String() string { return fmt.Sprint(s.list) }

// GoString keeps the secrets out of %#v as well.
func (s *Keys) GoString() string { return s.String() }

// Len is the number of keys.
func (s *Keys) Len() int { return len(s.list) }
