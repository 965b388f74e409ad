package trust

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"strings"

	"github.com/aether-gateway/gateway/internal/auth"
)

// The text of a key is ak_<id>_<secret>: both in lower-case base32, so that it
// survives whatever it is copied through.
var encoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Sizes in bytes. A secret is drawn, not chosen, so that one round of a fast
// hash is enough: nobody can try 2^256 of them.
const (
	idBytes     = 10
	secretBytes = 32
	saltBytes   = 16
)

var (
	idLength     = encoding.EncodedLen(idBytes)
	secretLength = encoding.EncodedLen(secretBytes)
)

// drawn returns random bytes in base32.
func drawn(n int) string {
	b := make([]byte, n)
	rand.Read(b) //nolint:errcheck // it never fails
	return encoding.EncodeToString(b)
}

func keyText(id, secret string) string { return auth.APIKeyPrefix + id + "_" + secret }

// parseKey takes the text of a key apart.
func parseKey(text string) (id, secret string, ok bool) {
	rest, prefixed := strings.CutPrefix(text, auth.APIKeyPrefix)
	id, secret, both := strings.Cut(rest, "_")
	ok = prefixed && both && len(id) == idLength && len(secret) == secretLength && plain(id) && plain(secret)
	if !ok {
		return "", "", false
	}
	return id, secret, true
}

func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

func hashOf(salt []byte, secret string) []byte {
	h := sha256.New()
	h.Write(salt)
	h.Write([]byte(secret))
	return h.Sum(nil)
}

// fits takes the same time for every secret.
func fits(salt, hash []byte, secret string) bool {
	return subtle.ConstantTimeCompare(hashOf(salt, secret), hash) == 1
}
