// Package storetest is the conformance suite of the store: what
// [store.Store] promises, as tests that each engine runs.
//
// It uses the interface only, and refuses nothing that the interface allows.
package storetest

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// Engine makes databases of one engine for the suite.
type Engine struct {
	// New makes an empty, migrated database that lives as long as the test and
	// returns how to open it. Open is called again after the store that it
	// returned was closed, and fails the test if it cannot. What it opens is
	// closed with the test, also if the suite has done so.
	// now is the store's clock.
	New func(t *testing.T, now func() time.Time) (open func() store.Store)
}

// test is one promise.
type test struct {
	name string
	run  func(*testing.T, *bench)
}

// Run runs the suite.
func Run(t *testing.T, e Engine) {
	for _, test := range slices.Concat(positionTests, noteTests, markTests, memberTests, keyTests, revocationTests, ruleTests, implementationTests, grantTests, placementTests, feedTests, auditTests, storedTests, kvTests, workspaceTests, mailboxTests, taskTests) {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			b := &bench{t: t}
			b.open = e.New(t, b.now)
			b.s = b.open()
			test.run(t, b)
		})
	}
}

// bench is one database under test.
type bench struct {
	t     *testing.T
	open  func() store.Store
	s     store.Store
	later atomic.Int64 // by how much the store's clock is ahead, in ns
}

func (b *bench) now() time.Time { return time.Now().Add(time.Duration(b.later.Load())) }

func (b *bench) commit(commits ...store.Commit) {
	b.t.Helper()
	if err := b.s.Commit(context.Background(), commits); err != nil {
		b.t.Fatal(err)
	}
}

// want checks a position through both ways of reading one.
func (b *bench) want(identity, address string, position, epoch uint64) {
	b.t.Helper()
	got, ok, err := b.s.Position(context.Background(), identity, address)
	if err != nil {
		b.t.Fatal(err)
	}
	if !ok || got != position {
		b.t.Errorf("Position(%q, %q) = %d, %v, want %d", identity, address, got, ok, position)
	}
	for _, p := range b.of(identity) {
		if p.Address == address {
			if p != (store.Position{Identity: identity, Address: address, Position: position, Epoch: epoch}) {
				b.t.Errorf("PositionsOf(%q): %+v, want position %d, epoch %d", identity, p, position, epoch)
			}
			return
		}
	}
	b.t.Errorf("PositionsOf(%q) has no %q", identity, address)
}

func (b *bench) wantNone(identity, address string) {
	b.t.Helper()
	if got, ok, err := b.s.Position(context.Background(), identity, address); ok || err != nil {
		b.t.Errorf("Position(%q, %q) = %d, %v, %v, want none", identity, address, got, ok, err)
	}
}

func (b *bench) of(identity string) []store.Position {
	b.t.Helper()
	all, err := b.s.PositionsOf(context.Background(), identity)
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

func (b *bench) under(prefix string) []store.Position {
	b.t.Helper()
	all, err := b.s.PositionsUnder(context.Background(), prefix)
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

func at(identity, address string, position, epoch uint64) store.Commit {
	return store.Commit{Identity: identity, Address: address, Position: position, Epoch: epoch}
}
