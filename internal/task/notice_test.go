package task

import (
	"context"
	"path/filepath"
	"sync"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/peers"
	"github.com/aether-gateway/gateway/internal/presence/local"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/sqlite"
	"github.com/aether-gateway/gateway/internal/store/sqlite/sqlitetest"
)

// slowLog is a message path whose log takes notices, and has them when the test
// says so.
type slowLog struct {
	mu     sync.Mutex
	told   []*aetherv1.ProgressUpdate
	stored []func()
}

func (l *slowLog) Decide(*acl.Principal, address.Address) acl.Decision {
	return acl.Decision{Allowed: true}
}
func (l *slowLog) MaxPayload() int { return 1 << 20 }

func (l *slowLog) Notify(u *aetherv1.ProgressUpdate, stored func()) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = append(l.told, u)
	if stored != nil {
		l.stored = append(l.stored, stored)
	}
	return nil
}

// store has the log store all that it has taken.
func (l *slowLog) store() {
	l.mu.Lock()
	stored := l.stored
	l.stored = nil
	l.mu.Unlock()
	for _, f := range stored {
		f()
	}
}

// still is a service whose sweep does not come, so that a test makes it itself.
func still(t *testing.T) (*Service, *slowLog) {
	t.Helper()
	file := sqlitetest.Open(t, filepath.Join(t.TempDir(), "aether.db"))
	t.Cleanup(func() { _ = file.Close() })
	db, err := sqlite.Open(context.Background(), file, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	leases := local.New(nil)
	l, net := &slowLog{}, peers.New(leases, nil)
	s := New(Options{Store: db, Router: l, Peers: net, Presence: leases, Sweep: time.Hour})
	t.Cleanup(func() {
		s.Close()
		net.Close()
	})
	return s, l
}

// Test136ToldWhenStored: a gateway whose log had stalled took a notice for told
// when it was handed over, and died or gave it up; nobody told the creator again.
// What follows and is not worth telling does not hide it either.
func Test136ToldWhenStored(t *testing.T) {
	t.Parallel()
	s, log := still(t)
	ctx := context.Background()
	made, _, err := s.Create(ctx, store.Task{Type: "t", Workspace: "w", Creator: "ag::w::i::boss", Mode: store.TaskPool, Implementation: "pool"})
	if err != nil {
		t.Fatal(err)
	}
	move := func(events ...Event) store.Task {
		t.Helper()
		got, err := s.Change(ctx, made.ID, func(t *store.Task) error {
			for _, e := range events {
				if err := Move(t, e, "", time.Now()); err != nil {
					return err
				}
			}
			t.DisconnectedAt = time.Time{}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	untold := func() int {
		t.Helper()
		s.writeTold(ctx)
		list, err := s.o.Store.UntoldTasks(ctx, time.Now().Add(time.Hour), 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	move(Assign)
	if untold() != 0 {
		t.Error("an assignment is to be told")
	}
	move(Run)
	if untold() != 1 {
		t.Error("a notice counts as told before it is stored")
	}
	if _, err := s.Change(ctx, made.ID, func(t *store.Task) error { // its worker is away for a moment
		t.DisconnectedAt = time.Now()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if untold() != 1 {
		t.Error("a change that is not worth telling hides one that was not told")
	}
	s.makeUp(ctx) // too early: it is 15 s until it is told once more
	if len(log.told) != 1 {
		t.Errorf("told %d times", len(log.told))
	}
	log.store()
	move(Complete)
	log.store()
	if untold() != 0 {
		t.Error("the end is stored, and is to be told once more")
	}
	if n := len(log.told); n != 2 || log.told[1].GetState() != "completed" {
		t.Errorf("%d notices, the last %v", n, log.told[n-1])
	}
}
