package mirror

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

const (
	// retryInterval is how long after a failure the next attempt is made, and
	// how often a copy without a feed is refreshed.
	retryInterval = time.Second
	// refreshTimeout bounds one refresh.
	refreshTimeout = 5 * time.Second
)

// Options say what a copy is of. Refresh is required.
type Options struct {
	// Name says what it is a copy of, for logs.
	Name string
	// Feed says when something has changed; nil: the copy is refreshed once a
	// second.
	Feed store.Feed
	// Subjects are those of which the copy is made.
	Subjects []store.Subject
	// Refresh takes over what has changed in the store, and returns nil when
	// the copy is as the store was after the call began. It is called from one
	// goroutine, and is not called again before it has returned.
	Refresh func(context.Context) error
	Logger  *slog.Logger
}

// Copy is kept up to date until it is closed. Its methods are safe for
// concurrent use.
type Copy struct {
	o      Options
	known  chan struct{}
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// Keep begins to keep a copy up to date. It must be closed.
func Keep(o Options) *Copy {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &Copy{o: o, known: make(chan struct{}), cancel: cancel}
	changed, stop := (<-chan struct{})(nil), func() {}
	if o.Feed != nil {
		changed, stop = o.Feed.Follow(o.Subjects...)
	}
	c.wg.Go(func() {
		defer stop()
		c.run(ctx, changed)
	})
	return c
}

// Known is closed when the copy has been made for the first time. Before that
// it knows nothing, and whoever asks it must be refused.
func (c *Copy) Known() <-chan struct{} { return c.known }

// Close ends the upkeep.
func (c *Copy) Close() {
	c.cancel()
	c.wg.Wait()
}

func (c *Copy) run(ctx context.Context, changed <-chan struct{}) {
	retry := time.NewTimer(0)
	defer retry.Stop()
	if changed != nil {
		retry.Stop() // a feed begins by itself
	}
	known, failing := false, false
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-retry.C:
		}
		err := c.refresh(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil && !failing:
			c.o.Logger.Warn("a copy of what the database keeps could not be refreshed; it is tried again every second, and stays as it is meanwhile",
				"copy", c.o.Name, "error", err)
		case err == nil && failing:
			c.o.Logger.Info("a copy of what the database keeps is up to date again", "copy", c.o.Name)
		}
		failing = err != nil
		if !failing && !known {
			known = true
			close(c.known)
		}
		if failing || c.o.Feed == nil {
			retry.Reset(retryInterval)
		}
	}
}

func (c *Copy) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	return c.o.Refresh(ctx)
}
