package trust

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/mirror"
	"github.com/aether-gateway/gateway/internal/store"
)

// Store is what this package needs of the store.
type Store interface {
	store.APIKeys
	store.Revocations
}

// Options configure [Keep]. Store is required.
type Options struct {
	Store Store
	// Feed says when the copy is to be refreshed; nil: once a second.
	Feed   store.Feed
	Logger *slog.Logger
	// Now is the clock; default [time.Now].
	Now func() time.Time
}

// Credentials are those that count at present. All methods are safe for
// concurrent use.
type Credentials struct {
	o    Options
	copy *mirror.Copy

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	refreshing sync.Mutex // held by the one that refreshes

	mu       sync.RWMutex
	known    bool
	keys     map[string]*key // by id
	revoked  map[mark]store.Revocation
	cursors  cursors
	onChange func()

	looks *mirror.Looks
	uses  uses
}

// cursors say how far the copy has come.
type cursors struct{ keys, revocations store.Cursor }

// mark is what a revocation is found by.
type mark struct {
	what store.Revoked
	id   string
}

var _ auth.APIKeys = (*Credentials)(nil)

// Keep begins to keep the copy. It must be closed.
func Keep(o Options) *Credentials {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Credentials{o: o, keys: map[string]*key{}, revoked: map[mark]store.Revocation{}}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.looks = mirror.NewLooks(lookPause, c.refresh)
	c.copy = mirror.Keep(mirror.Options{
		Name: "API keys and revocations", Feed: o.Feed, Subjects: []store.Subject{store.SubjectKeys}, Refresh: c.refresh, Logger: o.Logger,
	})
	c.wg.Go(c.lookAfterStore)
	return c
}

// Known is closed when the copy has been made for the first time.
func (c *Credentials) Known() <-chan struct{} { return c.copy.Known() }

// OnChange sets what is called, by one goroutine at a time, when something has
// been revoked or a key has changed.
func (c *Credentials) OnChange(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onChange = f
}

// Close ends the upkeep. The store stays its owner's. Of nil it does nothing.
func (c *Credentials) Close() {
	if c == nil {
		return
	}
	c.looks.Close()
	c.cancel()
	c.copy.Close()
	c.wg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.recordUses(ctx)
}

// refresh takes over what has changed in the store.
func (c *Credentials) refresh(ctx context.Context) error {
	c.refreshing.Lock()
	defer c.refreshing.Unlock()
	changed, err := c.takeOver(ctx)
	if errors.Is(err, store.ErrCursor) {
		// Another database, or an older state of it: what was revoked stays so
		// until the new copy is complete.
		changed, err = c.startAnew(ctx)
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.known = true
	c.forget()
	f := c.onChange
	c.mu.Unlock()
	if changed && f != nil {
		f()
	}
	return nil
}

// takeOver reads what is new into the copy.
func (c *Credentials) takeOver(ctx context.Context) (changed bool, err error) {
	c.mu.RLock()
	at := c.cursors
	c.mu.RUnlock()
	var keys []store.APIKey
	var revocations []store.Revocation
	if keys, at.keys, err = mirror.Pages(ctx, at.keys, c.o.Store.APIKeyChanges); err != nil {
		return false, err
	}
	if revocations, at.revocations, err = mirror.Pages(ctx, at.revocations, c.o.Store.RevocationChanges); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.adopt(keys, revocations)
	c.cursors = at
	return len(keys)+len(revocations) > 0, nil
}

// startAnew makes the copy from its beginning.
func (c *Credentials) startAnew(ctx context.Context) (changed bool, err error) {
	var at cursors
	var keys []store.APIKey
	var revocations []store.Revocation
	if keys, at.keys, err = mirror.Pages(ctx, 0, c.o.Store.APIKeyChanges); err != nil {
		return false, err
	}
	if revocations, at.revocations, err = mirror.Pages(ctx, 0, c.o.Store.RevocationChanges); err != nil {
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keys, c.revoked = map[string]*key{}, map[mark]store.Revocation{}
	c.adopt(keys, revocations)
	c.cursors = at
	return true, nil
}

// adopt puts changes into the copy. The lock is held.
func (c *Credentials) adopt(keys []store.APIKey, revocations []store.Revocation) {
	for i := range keys {
		k, err := read(&keys[i])
		if err != nil {
			// It cannot be used, and must not stay as it was.
			c.o.Logger.Error("an API key in the database cannot be read and is refused", "key", keys[i].ID, "error", err)
			delete(c.keys, keys[i].ID)
			continue
		}
		c.keys[k.stored.ID] = k
	}
	for _, r := range revocations {
		c.revoked[mark{r.What, r.ID}] = r
	}
}

// forget drops what is over from the copy. The lock is held.
func (c *Credentials) forget() {
	now := c.o.Now()
	for m, r := range c.revoked {
		if !r.Until.IsZero() && now.Sub(r.Until) > keepRevocations {
			delete(c.revoked, m)
		}
	}
	for id, k := range c.keys {
		if over := k.over(); !over.IsZero() && now.Sub(over) > keepKeys {
			delete(c.keys, id)
		}
	}
}

const (
	// upkeepInterval is how long the time of a key's last use waits to be stored,
	// in one statement for all; expireEvery upkeeps the store is rid of what is over.
	upkeepInterval = 5 * time.Second
	expireEvery    = 720
	// keepKeys is how long an expired or revoked key is still listed.
	keepKeys = 30 * 24 * time.Hour
	// keepRevocations is longer than the clocks of gateways can differ.
	keepRevocations = time.Hour
)

func (c *Credentials) lookAfterStore() {
	tick := time.NewTicker(upkeepInterval)
	defer tick.Stop()
	for n := 1; ; n++ {
		select {
		case <-c.ctx.Done():
			return
		case <-tick.C:
		}
		c.recordUses(c.ctx)
		if n%expireEvery == 0 {
			c.expire(c.ctx)
		}
	}
}

func (c *Credentials) expire(ctx context.Context) {
	now := c.o.Now()
	_, err := c.o.Store.ExpireAPIKeys(ctx, now.Add(-keepKeys))
	if err == nil {
		_, err = c.o.Store.ExpireRevocations(ctx, now.Add(-keepRevocations))
	}
	if err != nil && ctx.Err() == nil {
		c.o.Logger.Warn("old API keys and revocations could not be removed; it is tried again in an hour", "error", err)
	}
}
