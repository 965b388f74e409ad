package trust

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/store"
)

// key is an API key of the copy.
type key struct {
	stored store.APIKey
	claims auth.Claims
}

func read(k *store.APIKey) (*key, error) {
	claims, err := auth.ParseClaims(k.Claims)
	if err != nil {
		return nil, err
	}
	claims.ID, claims.IssuedAt, claims.ExpiresAt = k.ID, k.CreatedAt, k.ExpiresAt
	return &key{stored: *k, claims: claims}, nil
}

// over is when the key became worthless; zero: it has not, as far as it says.
func (k *key) over() time.Time {
	if !k.stored.RevokedAt.IsZero() {
		return k.stored.RevokedAt
	}
	return k.stored.ExpiresAt
}

// nobody is compared with if there is no such key, which so takes as long.
var nobody = store.APIKey{Salt: make([]byte, saltBytes), Hash: make([]byte, 32)}

// Find implements [auth.APIKeys].
func (c *Credentials) Find(ctx context.Context, text string) (id string, claims auth.Claims, err error) {
	id, secret, ok := parseKey(text)
	if !ok {
		return "", claims, auth.ErrAPIKey
	}
	k := c.key(id)
	if k == nil {
		if err := c.looks.Look(ctx); err != nil {
			return "", claims, auth.ErrKeysAway
		}
		k = c.key(id)
	}
	stored := &nobody
	if k != nil {
		stored = &k.stored
	}
	if !fits(stored.Salt, stored.Hash, secret) || k == nil {
		return "", claims, auth.ErrAPIKey
	}
	if !stored.RevokedAt.IsZero() {
		return "", claims, &auth.KeyOver{ID: id}
	}
	c.uses.note(id, c.o.Now())
	return id, k.claims, nil
}

func (c *Credentials) key(id string) *key {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.keys[id]
}

// lookPause is the least between two looks for keys that the copy does not have.
const lookPause = 250 * time.Millisecond

// uses are keys that were used and when, until they are stored. There are no
// more than keys.
type uses struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (u *uses) note(id string, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.at == nil {
		u.at = map[string]time.Time{}
	}
	u.at[id] = at
}

// recordUses stores them. That it fails is no harm: the next use tells more.
func (c *Credentials) recordUses(ctx context.Context) {
	c.uses.mu.Lock()
	at := c.uses.at
	c.uses.at = nil
	c.uses.mu.Unlock()
	list := make([]store.KeyUse, 0, len(at))
	for id, when := range at {
		list = append(list, store.KeyUse{ID: id, At: when})
	}
	if len(list) == 0 {
		return
	}
	if err := c.o.Store.UseAPIKeys(ctx, list); err != nil && ctx.Err() == nil {
		c.o.Logger.Warn("when API keys were used could not be stored", "error", err)
	}
}

// NewKey is an API key that is to be made.
type NewKey struct {
	// Name is for people: 1 to 128 bytes of printable text.
	Name string
	// Claims are what it proves, as those of a token would. Its ID and times are
	// not looked at.
	Claims auth.Claims
	// ExpiresAt is when it expires; zero: never, which is refused for users, whose
	// memberships last as long as what proves them.
	ExpiresAt time.Time
	// CreatedBy is who makes it, for the audit.
	CreatedBy string
}

// ErrKey is wrapped by the errors of what is wrong with a key that is to be
// made, ErrAmbiguous by that of a name that several good keys have. Their texts
// are for operators.
var (
	ErrKey       = errors.New("an API key cannot be made so")
	ErrAmbiguous = errors.New("several API keys have the name")
)

// keyError is an error with a text of its own that wraps one of the above.
type keyError struct {
	text string
	of   error
}

func (e *keyError) Error() string { return e.text }
func (e *keyError) Unwrap() error { return e.of }

func unmakeable(format string, args ...any) error {
	return &keyError{fmt.Sprintf(format, args...), ErrKey}
}

const maxKeyName = 128 // bytes

func (n *NewKey) check(now time.Time) error {
	switch {
	case n.Name == "" || len(n.Name) > maxKeyName || !printable(n.Name):
		return unmakeable("the key's name needs 1 to %d bytes of printable text", maxKeyName)
	case len(n.Name) == idLength && plain(n.Name):
		// Who revokes it by name could mean the key with that id.
		return unmakeable("the key's name looks like a key's id: use other than %d letters a to z and digits 2 to 7", idLength)
	case !n.ExpiresAt.IsZero() && !now.Before(n.ExpiresAt):
		return unmakeable("the key would have expired already")
	case n.ExpiresAt.IsZero() && n.Claims.Kind == auth.KindUser:
		return unmakeable("a user's key needs an expiry: what it proves of memberships lasts as long as it does")
	}
	return nil
}

func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}

// Key is what is told of an API key. Its secret is nowhere.
type Key struct {
	ID, Name             string
	Claims               auth.Claims
	CreatedBy, RevokedBy string
	// ExpiresAt is zero for never, RevokedAt and UsedAt for not yet. UsedAt is
	// stored some seconds after the use.
	CreatedAt, ExpiresAt, RevokedAt, UsedAt time.Time
}

func (k *key) told() Key {
	s := &k.stored
	return Key{
		ID: s.ID, Name: s.Name, Claims: k.claims, CreatedBy: s.CreatedBy, RevokedBy: s.RevokedBy,
		CreatedAt: s.CreatedAt, ExpiresAt: s.ExpiresAt, RevokedAt: s.RevokedAt, UsedAt: s.UsedAt,
	}
}

// CreateKey makes an API key. Its text is shown this once: nothing that is kept
// can give it again. Errors wrap [ErrKey], auth.ErrClaims, [store.ErrFull] or a
// [store.NameError] if a good key has the name, or are the store's, which may be
// repeated.
func (c *Credentials) CreateKey(ctx context.Context, n NewKey) (text string, made Key, err error) {
	if err := n.check(c.o.Now()); err != nil {
		return "", Key{}, err
	}
	id, secret := drawn(idBytes), drawn(secretBytes)
	claims, err := auth.FormatClaims(n.Claims)
	switch {
	case err != nil:
		return "", Key{}, err
	case len(claims) > auth.MaxToken:
		return "", Key{}, unmakeable("the key's claims have %d bytes, %d are allowed", len(claims), auth.MaxToken)
	}
	salt := make([]byte, saltBytes)
	rand.Read(salt) //nolint:errcheck // it never fails
	stored := store.APIKey{
		ID: id, Name: n.Name, Salt: salt, Hash: hashOf(salt, secret), Claims: claims,
		CreatedBy: n.CreatedBy, CreatedAt: c.o.Now(), ExpiresAt: n.ExpiresAt,
	}
	if err := c.o.Store.CreateAPIKey(ctx, stored); err != nil {
		return "", Key{}, err
	}
	c.changed(ctx)
	k, err := read(&stored)
	if err != nil {
		return "", Key{}, err
	}
	return keyText(id, secret), k.told(), nil
}

// changed takes over at once what this gateway has changed. The others, and this
// one if it fails, learn it by the feed.
func (c *Credentials) changed(ctx context.Context) { _ = c.refresh(ctx) }

// ListKeys returns up to limit keys behind a place, also those that expired or
// were revoked lately, in the order in which they were made.
func (c *Credentials) ListKeys(ctx context.Context, after store.KeyPlace, limit int) ([]Key, error) {
	all, err := c.o.Store.APIKeysAfter(ctx, after, limit)
	return told(all), err
}

func told(all []store.APIKey) []Key {
	list := make([]Key, 0, len(all))
	for i := range all {
		k, err := read(&all[i])
		if err != nil {
			k = &key{stored: all[i]}
		}
		list = append(list, k.told())
	}
	return list
}

// RevokeKey makes a key worthless, by its id, or by its name: the good key of that
// name, or if there is none the last one that was made. On every gateway connections with it
// end. was is whether it had been revoked before, which changes nothing. An
// error wraps [store.ErrNotFound] or [ErrAmbiguous], or is the store's, which may
// be repeated.
func (c *Credentials) RevokeKey(ctx context.Context, idOrName, by string) (k Key, was bool, err error) {
	all, err := c.o.Store.APIKeys(ctx)
	if err != nil {
		return Key{}, false, err
	}
	if k, err = choose(told(all), idOrName, c.o.Now()); err != nil {
		return Key{}, false, err
	}
	was = !k.RevokedAt.IsZero()
	if err := c.o.Store.RevokeAPIKey(ctx, k.ID, by); err != nil {
		return Key{}, false, err
	}
	c.changed(ctx)
	if !was {
		k.RevokedBy, k.RevokedAt = by, c.o.Now()
	}
	return k, was, nil
}

// choose returns the key that an id or a name means. Keys are in the order in
// which they were made.
func choose(all []Key, idOrName string, now time.Time) (Key, error) {
	var last Key
	var good []string
	for _, k := range all {
		switch {
		case k.ID == idOrName:
			return k, nil
		case k.Name != idOrName:
		case k.RevokedAt.IsZero() && (k.ExpiresAt.IsZero() || now.Before(k.ExpiresAt)):
			good, last = append(good, k.ID), k
		case len(good) == 0:
			last = k
		}
	}
	switch {
	case last.ID == "":
		return Key{}, fmt.Errorf("no API key %.128q: %w", idOrName, store.ErrNotFound)
	case len(good) > 1:
		return Key{}, &keyError{fmt.Sprintf("%d good keys are called %.128q: %s; name one by its id", len(good), idOrName, some(good)), ErrAmbiguous}
	}
	return last, nil
}

// some lists the first ids of many.
func some(ids []string) string {
	const most = 20
	if len(ids) <= most {
		return strings.Join(ids, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(ids[:most], ", "), len(ids)-most)
}
