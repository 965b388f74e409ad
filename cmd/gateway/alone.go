package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/postgres"
)

// aloneRetry is how often a gateway that starts looks whether its predecessor
// has gone.
const aloneRetry = 500 * time.Millisecond

// errReplaced ends a gateway whose place another one has taken.
var errReplaced = errors.New("another gateway has started on the same database while the connection to it was lost")

// serveOn takes the right to serve on the database. Without Redis leases are
// kept in the memory of one process, so that two would both deliver: then it is
// the only gateway, and one that is about to end is waited for.
func serveOn(ctx context.Context, log *slog.Logger, s *postgres.Store, shared bool) (*postgres.Right, error) {
	take, told := s.BeAlone, false
	if shared {
		take = s.BeAmong
	}
	for {
		right, err := take(ctx)
		switch {
		case told && err != nil && ctx.Err() != nil:
			// The time ran out in the middle of a try; what it had found says more.
		case !errors.Is(err, postgres.ErrNotAlone):
			return right, err
		}
		if !told {
			told = true
			log.Warn("another gateway serves on this database; waiting for it to end")
		}
		pause := time.NewTimer(aloneRetry)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			if shared {
				return nil, errors.New("a gateway without redis.url serves on this database, which must be alone: stop it, or give it the Redis of the others")
			}
			return nil, errors.New("another gateway serves on this database: stop that one, or give all of them the same redis.url so that they share it, or give this one a database and streams of its own")
		}
	}
}

// settlePlacement refuses to serve with another placement than the one that
// the messages were stored with (delivery rule C9): they would not be found.
func settlePlacement(ctx context.Context, cfg *config.Config, s store.Placement) error {
	own := placement(cfg).Fingerprint()
	stored, err := s.SettlePlacement(ctx, own)
	if err != nil {
		return err
	}
	if stored != own {
		return errPlacement(stored, own)
	}
	return nil
}

func errPlacement(stored, own string) error {
	return fmt.Errorf("the messages were stored with %s, not with %s: set streams.partitions and streams.placement back, they are fixed when a deployment is born", describe(stored), describe(own))
}

// describe says what a placement's fingerprint begins with.
func describe(fingerprint string) string {
	var partitions, rules int
	if _, err := fmt.Sscanf(fingerprint, "p%d-r%d-", &partitions, &rules); err != nil {
		return "the placement " + fingerprint
	}
	return fmt.Sprintf("%d partitions and %d placement rules (%s)", partitions, rules, fingerprint)
}
