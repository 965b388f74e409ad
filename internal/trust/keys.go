package trust

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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
		if err := c.lookAgain(ctx); err != nil {
			return "", claims, auth.ErrKeysAway
		}
		k = c.key(id)
	}
	stored := &nobody
	if k != nil {
		stored = &k.stored
	}
	if !fits(stored.Salt, stored.Hash, secret) || k == nil || !stored.RevokedAt.IsZero() {
		return "", claims, auth.ErrAPIKey
	}
	c.uses.note(id, c.o.Now())
	return id, k.claims, nil
}

func (c *Credentials) key(id string) *key {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.keys[id]
}

// looks are refreshes because of keys that the copy does not have. Whoever shows
// such a key waits for one that begins after that; there is one at a time, and a
// pause between two, however many keys are tried.
type looks struct {
	mu   sync.Mutex
	next *look // joined by all who come before it begins
	last time.Time
}

type look struct {
	done chan struct{}
	err  error
}

const (
	lookPause   = 250 * time.Millisecond
	lookTimeout = 2 * time.Second
)

var errStopped = errors.New("the gateway is shutting down")

// lookAgain refreshes the copy, and returns nil when it is as new as the call.
func (c *Credentials) lookAgain(ctx context.Context) error {
	c.looks.mu.Lock()
	if c.ctx.Err() != nil {
		c.looks.mu.Unlock()
		return errStopped
	}
	l := c.looks.next
	if l == nil {
		l = &look{done: make(chan struct{})}
		c.looks.next = l
		pause := time.Until(c.looks.last.Add(lookPause))
		c.wg.Go(func() { c.look(l, pause) })
	}
	c.looks.mu.Unlock()
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *Credentials) look(l *look, after time.Duration) {
	defer close(l.done)
	pause := time.NewTimer(after)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-c.ctx.Done():
		l.err = errStopped
		return
	}
	c.looks.mu.Lock()
	c.looks.next, c.looks.last = nil, time.Now()
	c.looks.mu.Unlock()
	ctx, cancel := context.WithTimeout(c.ctx, lookTimeout)
	defer cancel()
	l.err = c.refresh(ctx)
}

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

// ErrKey is wrapped by the errors of what is wrong with a key that is to be made
// or revoked. Their texts are for operators.
var ErrKey = errors.New("the API key cannot be changed so")

const maxKeyName = 128 // bytes

func (n *NewKey) check(now time.Time) error {
	switch {
	case n.Name == "" || len(n.Name) > maxKeyName || !printable(n.Name):
		return fmt.Errorf("%w: its name needs 1 to %d bytes of printable text", ErrKey, maxKeyName)
	case !n.ExpiresAt.IsZero() && !now.Before(n.ExpiresAt):
		return fmt.Errorf("%w: it would have expired already", ErrKey)
	case n.ExpiresAt.IsZero() && n.Claims.Kind == auth.KindUser:
		return fmt.Errorf("%w: a user's key needs an expiry", ErrKey)
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
	// coarse: to the minute.
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
// can give it again. Errors wrap [ErrKey], auth.ErrClaims or [store.ErrFull], or
// are the store's, which may be repeated.
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
		return "", Key{}, fmt.Errorf("%w: its claims have %d bytes, %d are allowed", ErrKey, len(claims), auth.MaxToken)
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

// ListKeys returns all keys, also those that expired or were revoked lately, in
// the order in which they were made.
func (c *Credentials) ListKeys(ctx context.Context) ([]Key, error) {
	all, err := c.o.Store.APIKeys(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]Key, 0, len(all))
	for i := range all {
		k, err := read(&all[i])
		if err != nil {
			k = &key{stored: all[i]}
		}
		list = append(list, k.told())
	}
	return list, nil
}

// RevokeKey makes a key worthless, by its id, or by its name if no other key that
// is good has it. On every gateway connections with it end. An error wraps
// [store.ErrNotFound] or [ErrKey], or is the store's, which may be repeated.
func (c *Credentials) RevokeKey(ctx context.Context, idOrName, by string) (Key, error) {
	all, err := c.ListKeys(ctx)
	if err != nil {
		return Key{}, err
	}
	k, err := choose(all, idOrName)
	if err != nil {
		return Key{}, err
	}
	if err := c.o.Store.RevokeAPIKey(ctx, k.ID, by); err != nil {
		return Key{}, err
	}
	c.changed(ctx)
	return k, nil
}

func choose(all []Key, idOrName string) (Key, error) {
	var called []Key
	for _, k := range all {
		if k.ID == idOrName {
			return k, nil
		}
		if k.Name == idOrName && k.RevokedAt.IsZero() {
			called = append(called, k)
		}
	}
	switch len(called) {
	case 0:
		return Key{}, fmt.Errorf("no API key %.128q: %w", idOrName, store.ErrNotFound)
	case 1:
		return called[0], nil
	}
	return Key{}, fmt.Errorf("%w: %d keys are called %.128q; name one by its id", ErrKey, len(called), idOrName)
}
