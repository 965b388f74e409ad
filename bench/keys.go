package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/client"
)

// keysCell measures how long an agent waits, from the start of its connect, for
// the snapshot of its keys when there are many, against the same when there are
// none.
func keysCell() cell {
	return cell{
		Name: cellKeys, Title: fmt.Sprintf("a ConfigSnapshot with %d keys", manyKeys),
		Systems: []string{nameRabbitMQ, nameEmbedded}, setup: 40 * time.Second, takes: 2 * time.Second,
		open: func(ctx context.Context, s *site, c cell, _ int) (stage, error) { return openKeys(ctx, s, c.Systems) },
	}
}

const (
	manyKeys = 10_000
	// newcomers connect one after the other in each round.
	newcomers = 50
	// keepers are the sessions that put the keys, hands the requests that each
	// has under way.
	keepers = 4
	hands   = 8
)

type keys struct {
	site *site
	came atomic.Int64
	none map[string][]time.Duration // by system
}

func openKeys(ctx context.Context, s *site, systems []string) (*keys, error) {
	k := &keys{site: s, none: map[string][]time.Duration{}}
	for _, system := range systems {
		var err error
		if k.none[system], err = k.come(ctx, system, 0); err != nil {
			return nil, err
		}
		if err = k.fill(ctx, system); err != nil {
			return nil, err
		}
	}
	return k, nil
}

func (k *keys) connect(ctx context.Context, system string) (*client.Client, error) {
	t := k.site.systems[system].(*server).target
	return client.Connect(ctx, client.Options{
		Addr: t.addr, Token: t.token, AllowPlaintext: true,
		Identity: client.Agent(workspace, implementation, fmt.Sprintf("newcomer-%d", k.came.Add(1))),
	})
}

// fill puts the keys, of some forty bytes with their values.
func (k *keys) fill(ctx context.Context, system string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var left atomic.Int64
	left.Store(manyKeys)
	var all sync.WaitGroup
	for range keepers {
		c, err := k.connect(ctx, system)
		if err != nil {
			return err
		}
		defer c.Close(ctx) //nolint:errcheck // nothing of it is under way
		space := c.Keys(client.KeySpace{})
		for range hands {
			all.Go(func() {
				for n := left.Add(-1); n >= 0; n = left.Add(-1) {
					if err := space.Put(ctx, fmt.Sprintf("settings/%06d", n), []byte("a value of some length, as it is"[:25]), 0); err != nil {
						cancel(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	return context.Cause(ctx)
}

// come lets agents connect and wait for their snapshots, which must have so many
// keys.
func (k *keys) come(ctx context.Context, system string, want int) ([]time.Duration, error) {
	var took []time.Duration
	for range newcomers {
		begin := time.Now()
		c, err := k.connect(ctx, system)
		if err != nil {
			return nil, err
		}
		config, err := c.Config(ctx)
		took = append(took, time.Since(begin))
		if err == nil && (len(config.Workspace) != want || config.Truncated) {
			err = fmt.Errorf("a snapshot has %d keys, not %d", len(config.Workspace), want)
		}
		if err = errors.Join(err, c.Close(ctx)); err != nil {
			return nil, err
		}
	}
	return took, nil
}

func (k *keys) run(ctx context.Context, system string, _ int) (outcome, error) {
	took, err := k.come(ctx, system, manyKeys)
	return outcome{Keyed: took, Keyless: k.none[system]}, err
}

// close removes the keys: other cells connect as the same implementation.
func (k *keys) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for system := range k.none {
		errs = append(errs, k.empty(ctx, system))
	}
	return errors.Join(errs...)
}

func (k *keys) empty(ctx context.Context, system string) error {
	c, err := k.connect(ctx, system)
	if err != nil {
		return err
	}
	defer c.Close(ctx) //nolint:errcheck // nothing of it is under way
	space := c.Keys(client.KeySpace{})
	var names []string
	for kv, err := range space.List(ctx, "settings/") {
		if err != nil {
			return err
		}
		names = append(names, kv.Key)
	}
	next := make(chan string)
	failed := make(chan error, keepers*hands)
	var all sync.WaitGroup
	for range keepers * hands {
		all.Go(func() {
			for name := range next {
				if err := space.Delete(ctx, name); err != nil {
					failed <- err
					for range next { // the others do the rest
					}
				}
			}
		})
	}
	for _, name := range names {
		next <- name
	}
	close(next)
	all.Wait()
	close(failed)
	return <-failed
}

// snapshots are the figures of the cell.
func (r *report) snapshots() []row {
	p50 := func(d []time.Duration) float64 { return float64(percentile(d, 0.5)) / 1e6 }
	var rows []row
	for _, x := range []struct{ name, system string }{{"gateway", nameRabbitMQ}, {"embedded", nameEmbedded}} {
		rows = append(rows, compare(fmt.Sprintf("%s, connect to a snapshot of %d keys, p50", x.name, manyKeys), "ms",
			r.rounds(cellKeys, x.system, func(o *outcome) float64 { return p50(o.Keyed) }),
			"no keys", r.rounds(cellKeys, x.system, func(o *outcome) float64 { return p50(o.Keyless) })))
	}
	return rows
}
