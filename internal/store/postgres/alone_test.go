package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store/postgres"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// One gateway serves on a database; another may when it has gone, and the first
// keeps its right over a restart of the database.
func TestAlone(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := testservices.NewPostgres(t)
	up(t, db.URL())
	one, two := open(t, db.URL(), postgres.Options{}), open(t, db.URL(), postgres.Options{})
	first, err := one.BeAlone(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.BeAlone(ctx); !errors.Is(err, postgres.ErrNotAlone) {
		t.Fatalf("a second one got %v", err)
	}
	db.Kill()
	db.Start()
	taken := func(s *postgres.Store) (*postgres.Right, error) {
		t.Helper()
		deadline := time.Now().Add(30 * time.Second)
		for {
			a, err := s.BeAlone(ctx)
			if err == nil || errors.Is(err, postgres.ErrNotAlone) {
				return a, err
			}
			if time.Now().After(deadline) {
				t.Fatal(err)
			}
		}
	}
	// Whoever asks first after the restart has it, and the other one learns of
	// it.
	if second, err := taken(two); err == nil {
		select {
		case <-first.Lost():
		case <-time.After(30 * time.Second):
			t.Fatal("the first gateway does not learn that it is not alone")
		}
		_ = second.Close()
	}
	_ = first.Close()
	third, err := taken(two)
	if err != nil {
		t.Fatalf("the right was not given back: %v", err)
	}
	_ = third.Close()
}

// Those that share their leases serve together, and exclude one that would be
// alone; and the other way round.
func TestAmong(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := withTables(t)
	one, two := open(t, db.URL(), postgres.Options{}), open(t, db.URL(), postgres.Options{})
	first, err := one.BeAmong(ctx)
	if err != nil {
		t.Fatal(err)
	}
	second, err := two.BeAmong(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	if _, err := one.BeAlone(ctx); !errors.Is(err, postgres.ErrNotAlone) {
		t.Fatalf("one that is alone beside another: %v", err)
	}
	_ = second.Close()
	alone, err := one.BeAlone(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := two.BeAmong(ctx); !errors.Is(err, postgres.ErrNotAlone) {
		t.Fatalf("another beside one that is alone: %v", err)
	}
	_ = alone.Close()
}
