package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/postgres"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// sees waits until a follower of here has read that a user is ruled out there.
func sees(t *testing.T, here, there *postgres.Store, changed <-chan struct{}, user string) (after time.Duration) {
	t.Helper()
	ctx := context.Background()
	if err := there.RuleMembership(ctx, user, "w", store.RuledOut); err != nil {
		t.Fatal(err)
	}
	return reads(t, here, changed, user)
}

func reads(t *testing.T, here *postgres.Store, changed <-chan struct{}, user string) (after time.Duration) {
	t.Helper()
	began := time.Now()
	end := time.After(patience)
	for {
		select {
		case <-changed:
		case <-end:
			t.Fatal("the feed tells nothing")
		}
		if list, err := here.MembershipsOf(context.Background(), user); err == nil && len(list) == 1 {
			return time.Since(began)
		}
	}
}

// What one gateway changes, another one is told of at once.
func TestFeedOfAnotherGateway(t *testing.T) {
	t.Parallel()
	url := withTables(t).URL()
	here, there := open(t, url, postgres.Options{}), open(t, url, postgres.Options{})
	changed, stop := here.Follow(store.SubjectMembers)
	defer stop()
	for i := range 5 {
		t.Log(sees(t, here, there, changed, fmt.Sprint("u", i)))
	}
}

// endListeners ends the connections that listen in a database, as a restart of
// it would.
func endListeners(t *testing.T, url string) {
	t.Helper()
	err := postgres.WithDB(context.Background(), url, func(ctx context.Context, db *sql.DB) error {
		var ended int
		for deadline := time.Now().Add(patience); ended == 0 && time.Now().Before(deadline); {
			err := db.QueryRowContext(ctx, `select count(pg_terminate_backend(pid)) from pg_stat_activity
				where datname = current_database() and application_name = 'aether-gateway changes'`).Scan(&ended)
			if err != nil {
				return err
			}
		}
		if ended == 0 {
			return fmt.Errorf("nobody listens")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A change that falls into a lost connection is told of all the same.
func TestFeedLosesItsConnection(t *testing.T) {
	t.Parallel()
	url := withTables(t).URL()
	here, there := open(t, url, postgres.Options{}), open(t, url, postgres.Options{})
	changed, stop := here.Follow(store.SubjectMembers)
	defer stop()
	for i := range 5 {
		endListeners(t, url)
		t.Log(sees(t, here, there, changed, fmt.Sprint("u", i)))
	}
}

// So is one of while the database could not be reached, when it can be again.
func TestFeedBehindABlackHole(t *testing.T) {
	t.Parallel()
	db := withTables(t)
	proxy := faultproxy.New(t, fmt.Sprintf("127.0.0.1:%d", db.Port()))
	url := strings.Replace(db.URL(), fmt.Sprint(":", db.Port(), "/"), fmt.Sprint(":", proxy.Port(), "/"), 1)
	here := open(t, url, postgres.Options{Timeout: time.Second})
	there := open(t, db.URL(), postgres.Options{})
	changed, stop := here.Follow(store.SubjectMembers)
	defer stop()
	t.Log(sees(t, here, there, changed, "before"))
	proxy.Blackhole(true)
	if err := there.RuleMembership(context.Background(), "within", "w", store.RuledOut); err != nil {
		t.Fatal(err)
	}
	if _, err := here.MembershipsOf(context.Background(), "within"); err == nil {
		t.Fatal("the black hole lets through")
	}
	proxy.Blackhole(false)
	proxy.Cut()
	t.Log(reads(t, here, changed, "within"))
	t.Log(sees(t, here, there, changed, "after"))
}

// A database that is restarted tells again.
func TestFeedOfARestartedDatabase(t *testing.T) {
	t.Parallel()
	db := testservices.NewPostgres(t)
	up(t, db.URL())
	here, there := open(t, db.URL(), postgres.Options{}), open(t, db.URL(), postgres.Options{})
	changed, stop := here.Follow(store.SubjectMembers)
	defer stop()
	for i := range 2 {
		t.Log(sees(t, here, there, changed, fmt.Sprint("u", i)))
		db.Kill()
		db.Start()
	}
	t.Log(sees(t, here, there, changed, "last"))
}
