package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/migrate"
	"github.com/aether-gateway/gateway/internal/store/postgres"
	"github.com/aether-gateway/gateway/internal/store/storetest"
	"github.com/aether-gateway/gateway/internal/testservices"
)

func TestMain(m *testing.M) { os.Exit(testservices.Main(m)) }

func up(t *testing.T, url string) {
	t.Helper()
	if err := migrateUp(url); err != nil {
		t.Fatal(err)
	}
}

func migrateUp(url string) error {
	return postgres.WithDB(context.Background(), url, func(ctx context.Context, db *sql.DB) error {
		return migrate.Up(ctx, migrate.Postgres, db)
	})
}

// withTables returns a database with all tables in it.
func withTables(t *testing.T) *testservices.Database {
	t.Helper()
	return testservices.PostgresLike(t, migrateUp)
}

func open(t *testing.T, url string, o postgres.Options) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(context.Background(), url, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Engine{New: func(t *testing.T, now func() time.Time) func() store.Store {
		url := withTables(t).URL()
		return func() store.Store { return open(t, url, postgres.Options{Now: now}) }
	}})
}

func TestSchemaVersions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := testservices.Postgres(t).URL()
	var schema *store.SchemaError
	_, err := postgres.Open(ctx, url, postgres.Options{})
	if !errors.As(err, &schema) || schema.Have != 0 || !strings.Contains(err.Error(), `run "gateway migrate up"`) {
		t.Errorf("no schema: %v", err)
	}
	up(t, url)
	exec := func(fn func(ctx context.Context, db *sql.DB) error) {
		t.Helper()
		if err := postgres.WithDB(ctx, url, fn); err != nil {
			t.Fatal(err)
		}
	}
	exec(func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, "insert into gateway_schema_version (version_id, is_applied) values (9999, true)")
		return err
	})
	_, err = postgres.Open(ctx, url, postgres.Options{})
	if !errors.As(err, &schema) || schema.Have != 9999 || !strings.Contains(err.Error(), "newer gateway") {
		t.Errorf("newer schema: %v", err)
	}
	exec(func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, "delete from gateway_schema_version where version_id = 9999")
		return errors.Join(err, migrate.Down(ctx, migrate.Postgres, db))
	})
	_, err = postgres.Open(ctx, url, postgres.Options{})
	if !errors.As(err, &schema) || schema.Have >= schema.Want {
		t.Errorf("older schema: %v", err)
	}
}

// The password is in no error, whatever is wrong with the URL or behind it.
func TestErrorsHideThePassword(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	closed := closedPort(t)
	for _, url := range []string{
		"postgres://u:s3cret@127.0.0.1:" + closed + "/db",
		"postgres://u:s3cret@127.0.0.1:notaport/db",
		"postgres://u:s3cret@[::1/db",
		"postgres://u:%zzs3cret@127.0.0.1/db",
		"postgres://u:s3cret /@127.0.0.1/db",
		"host=127.0.0.1 port=" + closed + " user=u password=s3cret",
		"host=127.0.0.1 port=x password = s3cret",
		"postgres://u@127.0.0.1:" + closed + "/s3cret?password=s3cret",
		"u:s3cret@127.0.0.1",
		"postgres://u:s3cret@127.0.0.1/db?sslmode=nonsense",
		"postgres://u:s3cret@127.0.0.1/db?pool_max_conns=s3cret",
	} {
		_, err := postgres.Open(ctx, url, postgres.Options{})
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("Open: %v", err)
		}
		err = postgres.WithDB(ctx, url, func(ctx context.Context, db *sql.DB) error { return db.PingContext(ctx) })
		if err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("WithDB: %v", err)
		}
	}
	// Not even when the database repeats it.
	url := strings.Replace(testservices.Postgres(t).URL(), "postgres@", "postgres:s3c%20ret@", 1)
	err := postgres.WithDB(ctx, url, func(ctx context.Context, db *sql.DB) error {
		_, err := db.ExecContext(ctx, `select 1 from "s3c ret"`)
		return err
	})
	if err == nil || strings.Contains(err.Error(), "s3c") || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("got %v", err)
	}
}

// What keeps a gateway from its database is said in one line, by the database's
// own word if it has one.
func TestRefusedConnectionIsOneLine(t *testing.T) {
	t.Parallel()
	base := strings.Replace(testservices.Postgres(t).URL(), "127.0.0.1", "localhost", 1)
	for want, url := range map[string]string{
		`database "nowhere" does not exist`: base[:strings.LastIndex(base, "/")] + "/nowhere",
		"refused":                           "postgres://u@localhost:" + closedPort(t) + "/db",
	} {
		_, err := postgres.Open(context.Background(), url, postgres.Options{})
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want one line with %q", err, want)
		}
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return port
}

// A refusal by what is in the tables is no lost connection: it was tried again, and
// all connections of the pool were closed for it.
func TestRefusalsKeepConnections(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := withTables(t).URL()
	s := open(t, url, postgres.Options{MaxConns: 1})
	rule := store.Rule{Effect: "deny", Principal: "ag::w::i::s", Action: "send", Address: "ga::w", Grammar: "strict"}
	if _, added, err := s.AddRule(ctx, rule, 1); err != nil || !added {
		t.Fatal(added, err)
	}
	connections := func() (pids string) {
		t.Helper()
		err := postgres.WithDB(ctx, url, func(ctx context.Context, db *sql.DB) error {
			const query = `select coalesce(string_agg(pid::text, ','), 'none') from pg_stat_activity where datname = current_database() and application_name = 'aether-gateway'`
			return db.QueryRowContext(ctx, query).Scan(&pids)
		})
		if err != nil {
			t.Fatal(err)
		}
		return pids
	}
	before := connections()
	rest := new(store.RestError)
	for what, call := range map[string]func() error{
		"the same rule": func() error {
			_, added, err := s.AddRule(ctx, rule, 1)
			return wanted(err, err == nil && !added)
		},
		"one rule more": func() error {
			other := rule
			other.Effect = "allow"
			_, _, err := s.AddRule(ctx, other, 1)
			return wanted(err, errors.Is(err, store.ErrFull))
		},
		"no such key": func() error {
			err := s.RevokeAPIKey(ctx, "none", "o")
			return wanted(err, errors.Is(err, store.ErrNotFound))
		},
		"a name that rests": func() error {
			_, _, err := s.CreateWorkspace(ctx, "v", "o")
			_, deleteErr := s.DeleteWorkspace(ctx, "v")
			_, _, again := s.CreateWorkspace(ctx, "v", "o")
			return errors.Join(err, deleteErr, wanted(again, errors.As(again, &rest)))
		},
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if after := connections(); after != before {
			t.Fatalf("%s: the connection was %s and is %s", what, before, after)
		}
	}
}

// wanted is nil for an error that is the one wanted.
func wanted(err error, is bool) error {
	if is {
		return nil
	}
	return fmt.Errorf("not the refusal: %v", err)
}

// everyCall runs each method once and returns the errors by name.
func everyCall(s store.Store) map[string]error {
	ctx := context.Background()
	errs := map[string]error{}
	_, _, errs["Position"] = s.Position(ctx, "i", "a")
	_, errs["PositionsOf"] = s.PositionsOf(ctx, "i")
	_, errs["PositionsUnder"] = s.PositionsUnder(ctx, "a")
	errs["Commit"] = s.Commit(ctx, []store.Commit{{Identity: "i", Address: "a", Position: 1}})
	_, errs["ExpirePositions"] = s.ExpirePositions(ctx, time.UnixMilli(0))
	_, errs["NoteAbsence"] = s.NoteAbsence(ctx, []store.Note{{Address: "a"}})
	_, _, errs["Note"] = s.Note(ctx, "a")
	_, errs["RaiseNotes"] = s.RaiseNotes(ctx, []store.Raise{{Address: "b", To: 1}})
	_, errs["DeleteNotes"] = s.DeleteNotes(ctx, []store.Note{{Address: "b"}})
	_, errs["ExpireNotes"] = s.ExpireNotes(ctx, time.UnixMilli(0))
	_, errs["CountNotes"] = s.CountNotes(ctx)
	_, errs["BeginSession"] = s.BeginSession(ctx, store.Session{Identity: "i", Address: "a"})
	errs["CommitClean"] = s.CommitClean(ctx, []store.Commit{{Identity: "i", Address: "a", Position: 1}})
	errs["TouchSessions"] = s.TouchSessions(ctx, []store.Session{{Identity: "i", Address: "a"}})
	_, errs["Mark"] = s.Mark(ctx, "i", "a")
	_, errs["ExpireMarks"] = s.ExpireMarks(ctx, time.UnixMilli(0))
	_, errs["CountMarks"] = s.CountMarks(ctx)
	errs["LearnMembership"] = s.LearnMembership(ctx, "u", []string{"w"}, time.UnixMilli(1))
	errs["RuleMembership"] = s.RuleMembership(ctx, "u", "w", store.RuledOut)
	_, errs["MembershipsOf"] = s.MembershipsOf(ctx, "u")
	_, errs["Ruled"] = s.Ruled(ctx, store.RuledOut)
	_, _, errs["MembershipChanges"] = s.MembershipChanges(ctx, 0, 1)
	_, errs["ExpireMemberships"] = s.ExpireMemberships(ctx, time.UnixMilli(0))
	_, _, errs["CreateWorkspace"] = s.CreateWorkspace(ctx, fmt.Sprint("w", time.Now().UnixNano()), "o")
	_, errs["DeleteWorkspace"] = s.DeleteWorkspace(ctx, "w")
	_, errs["Workspaces"] = s.Workspaces(ctx)
	_, _, errs["WorkspaceChanges"] = s.WorkspaceChanges(ctx, 0, 1)
	_, errs["PurgeWorkspaces"] = s.PurgeWorkspaces(ctx)
	_, errs["ExpireWorkspaces"] = s.ExpireWorkspaces(ctx, time.UnixMilli(0))
	_, errs["MembershipsIn"] = s.MembershipsIn(ctx, "w", "", 1)
	_, errs["SettlePlacement"] = s.SettlePlacement(ctx, "p")
	_, errs["ReplacePlacement"] = s.ReplacePlacement(ctx, "p", "q")
	_, _, errs["LoadStored"] = s.LoadStored(ctx, 0)
	_, errs["SaveStored"] = s.SaveStored(ctx, 0, store.StoredUsage{Width: time.Second, Position: 1}, 0, time.Now())
	errs["ResetStored"] = s.ResetStored(ctx, 0)
	_, _, errs["GetKV"] = s.GetKV(ctx, store.KVSpace{Scope: 1}, "k")
	errs["ChangeKV"] = s.ChangeKV(ctx, store.KVSpace{Scope: 1}, "k", store.KVAccount{}, func(time.Time, *store.KVRow) (store.KVChange, error) {
		return store.KVChange{Verb: store.KVPut, Value: []byte("v")}, nil
	})
	_, _, errs["ListKV"] = s.ListKV(ctx, store.KVSpace{Scope: 1}, "", "", 1, 1)
	_, _, errs["ListKVKeys"] = s.ListKVKeys(ctx, store.KVSpace{Scope: 1}, "", "", 1)
	_, _, errs["SnapshotKV"] = s.SnapshotKV(ctx, store.KVSpace{Scope: 1}, store.KVSpace{Scope: 2}, 0, 1, 1)
	_, errs["PurgeKV"] = s.PurgeKV(ctx, "nobody")
	_, errs["ExpireKV"] = s.ExpireKV(ctx)
	_, _, errs["CountKV"] = s.CountKV(ctx, "a")
	errs["Ping"] = s.Ping(ctx)
	return errs
}

// openImpatient opens a store whose calls may take 300 ms. On a busy machine not
// every login is as quick as that.
func openImpatient(t *testing.T, url string) *postgres.Store {
	t.Helper()
	var s *postgres.Store
	var err error
	for range 60 {
		s, err = postgres.Open(context.Background(), url, postgres.Options{Timeout: 300 * time.Millisecond, MaxConns: 2})
		if err == nil {
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
	}
	t.Fatal(err)
	return nil
}

// A database that hangs costs its callers the time of a call and no more; when
// it goes on, so do they.
func TestHangingDatabase(t *testing.T) {
	t.Parallel()
	db := testservices.NewPostgres(t)
	up(t, db.URL())
	s := openImpatient(t, db.URL())
	db.Stop()
	for name, err := range everyCall(s) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		// The second is said when it is noticed first that a connection gets no answer.
		if text := err.Error(); !strings.Contains(text, "no answer within 300ms") && !strings.Contains(text, "no connection as user") {
			t.Errorf("%s: %v", name, err)
		}
	}
	start := time.Now()
	_, err := postgres.Open(context.Background(), db.URL(), postgres.Options{Timeout: 300 * time.Millisecond})
	if err == nil || time.Since(start) > 10*time.Second {
		t.Errorf("Open: %v after %v", err, time.Since(start))
	}
	db.Cont()
	eventually(t, s)
}

// So does one that cannot be reached any more without a word.
func TestBlackHole(t *testing.T) {
	t.Parallel()
	db := withTables(t)
	proxy := faultproxy.New(t, fmt.Sprintf("127.0.0.1:%d", db.Port()))
	url := strings.Replace(db.URL(), fmt.Sprint(":", db.Port(), "/"), fmt.Sprint(":", proxy.Port(), "/"), 1)
	s := openImpatient(t, url)
	proxy.Blackhole(true)
	for name, err := range everyCall(s) {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	proxy.Blackhole(false)
	proxy.Cut()
	eventually(t, s)
}

// eventually wants every call to succeed within a generous time. On a busy machine
// one that goes on may take longer than an impatient store waits.
func eventually(t *testing.T, s store.Store) {
	t.Helper()
	failed := map[string]error{}
	for range 60 { // each attempt takes its Timeout at most
		if err := s.Ping(context.Background()); err != nil {
			failed["Ping"] = err
			continue
		}
		clear(failed)
		for name, err := range everyCall(s) {
			if err != nil {
				failed[name] = err
			}
		}
		if len(failed) == 0 {
			return
		}
	}
	t.Errorf("still failing: %v", failed)
}

// After a restart of the database the pool is full of dead connections; nobody
// gets to see that.
func TestRestartedDatabase(t *testing.T) {
	t.Parallel()
	db := testservices.NewPostgres(t)
	up(t, db.URL())
	s := open(t, db.URL(), postgres.Options{})
	for range 3 {
		done := make(chan map[string]error)
		for range 4 {
			go func() { done <- everyCall(s) }()
		}
		for range 4 {
			for name, err := range <-done {
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		db.Kill()
		if err := s.Ping(context.Background()); err == nil {
			t.Error("a dead database answered")
		}
		db.Start()
	}
}

// A pool whose connections are all taken makes others wait, but not for ever.
func TestExhaustedPool(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := withTables(t).URL()
	s := open(t, url, postgres.Options{MaxConns: 1, Timeout: 500 * time.Millisecond})
	err := postgres.WithDB(ctx, url, func(ctx context.Context, db *sql.DB) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, "lock table positions, notes, marks, members, settings, stored, stored_upto, workspaces, kv, kv_accounts"); err != nil {
			return err
		}
		for name, err := range everyCall(s) {
			if name != "Ping" && err == nil {
				t.Errorf("%s worked on a locked table", name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, s)
}
