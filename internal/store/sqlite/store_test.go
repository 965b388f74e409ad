package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/migrate"
	"github.com/aether-gateway/gateway/internal/store/sqlite"
	"github.com/aether-gateway/gateway/internal/store/sqlite/sqlitetest"
	"github.com/aether-gateway/gateway/internal/store/storetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openFile(t *testing.T, path string) *sqlitefile.File {
	t.Helper()
	f, err := sqlitefile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// openTables is openFile with all tables in the file.
func openTables(t *testing.T, path string) *sqlitefile.File {
	t.Helper()
	f := sqlitetest.Open(t, path)
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, storetest.Engine{New: func(t *testing.T, now func() time.Time) func() store.Store {
		path := t.TempDir() + "/gateway.db"
		var file *sqlitefile.File
		return func() store.Store {
			if file != nil {
				if err := file.Close(); err != nil {
					t.Fatal(err)
				}
			}
			file = openTables(t, path)
			s, err := sqlite.Open(context.Background(), file, sqlite.Options{Now: now})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
	}})
}

func TestMovedAt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	file := openFile(t, t.TempDir()+"/gateway.db")
	if err := sqlite.Migrate(ctx, file); err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1000)
	s, err := sqlite.Open(ctx, file, sqlite.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	commit := func(identity string, position uint64) {
		t.Helper()
		if err := s.Commit(ctx, []store.Commit{{Identity: identity, Address: "a", Position: position}}); err != nil {
			t.Fatal(err)
		}
	}
	commit("moved", 1)
	commit("rests", 1)
	now = time.UnixMilli(2000)
	commit("moved", 2)
	commit("rests", 1)
	if n, err := s.ExpirePositions(ctx, time.UnixMilli(1000)); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := s.ExpirePositions(ctx, time.UnixMilli(2000)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if _, ok, _ := s.Position(ctx, "moved", "a"); !ok {
		t.Error("the moved one is gone")
	}
}

// A note that is written again lives on, also if its position stays: the mail
// behind it is as new.
func TestNotesLiveAsLongAsTheirMail(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	file := openFile(t, t.TempDir()+"/gateway.db")
	if err := sqlite.Migrate(ctx, file); err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1000)
	s, err := sqlite.Open(ctx, file, sqlite.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	note := func(addresses ...string) {
		t.Helper()
		for _, a := range addresses {
			if _, err := s.NoteAbsence(ctx, []store.Note{{Address: a, Position: uint64(now.UnixMilli())}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	note("rests", "repeated", "raised")
	now = time.UnixMilli(2000)
	note("repeated")
	if n, err := s.RaiseNotes(ctx, []store.Raise{{Address: "raised", From: 1000, To: 1500}}); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := s.ExpireNotes(ctx, time.UnixMilli(2000)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for address, want := range map[string]uint64{"repeated": 1000, "raised": 1500} {
		if got, ok, err := s.Note(ctx, address); got != want || !ok || err != nil {
			t.Errorf("%s: %d, %v, %v", address, got, ok, err)
		}
	}
}

// The position of a session that ends or is touched is as new as that, also if
// it did not move: what came after it is not older.
func TestPositionsLiveAsLongAsTheirSessions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	file := openFile(t, t.TempDir()+"/gateway.db")
	if err := sqlite.Migrate(ctx, file); err != nil {
		t.Fatal(err)
	}
	now := time.UnixMilli(1000)
	s, err := sqlite.Open(ctx, file, sqlite.Options{Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"rests", "begins", "ends", "touched", "another touched"} {
		must(s.CommitClean(ctx, []store.Commit{{Identity: name, Address: "a", Position: 7, Epoch: 1}}))
	}
	now = time.UnixMilli(2000)
	_, err = s.BeginSession(ctx, store.Session{Identity: "begins", Address: "a", Epoch: 1})
	must(err)
	must(s.CommitClean(ctx, []store.Commit{{Identity: "ends", Address: "a", Position: 7, Epoch: 1}}))
	must(s.TouchSessions(ctx, []store.Session{
		{Identity: "touched", Address: "a", Epoch: 1}, {Identity: "another touched", Address: "a", Epoch: 2},
	}))
	if n, err := s.ExpirePositions(ctx, time.UnixMilli(2000)); n != 2 || err != nil {
		t.Errorf("%d positions, %v", n, err)
	}
	if n, err := s.ExpireMarks(ctx, time.UnixMilli(2000)); n != 2 || err != nil {
		t.Errorf("%d marks, %v", n, err)
	}
	for _, name := range []string{"begins", "ends", "touched"} {
		if _, ok, err := s.Position(ctx, name, "a"); !ok || err != nil {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
	if m, err := s.Mark(ctx, "ends", "a"); err != nil || m != (store.Mark{Clean: true, Position: 7, At: now}) {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestSchemaVersions(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	file := openFile(t, t.TempDir()+"/gateway.db")
	var schema *store.SchemaError
	_, err := sqlite.Open(ctx, file, sqlite.Options{})
	if !errors.As(err, &schema) || schema.Have != 0 || !strings.Contains(err.Error(), `run "gateway migrate up"`) {
		t.Errorf("no schema: %v", err)
	}
	if err := sqlite.Migrate(ctx, file); err != nil {
		t.Fatal(err)
	}
	err = file.Exclusive(ctx, func(db *sql.DB) error {
		_, err := db.Exec("insert into gateway_schema_version (version_id, is_applied) values (9999, 1)")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.Open(ctx, file, sqlite.Options{})
	if !errors.As(err, &schema) || schema.Have != 9999 || !strings.Contains(err.Error(), "newer gateway") {
		t.Errorf("newer schema: %v", err)
	}
	err = file.Exclusive(ctx, func(db *sql.DB) error {
		if _, err := db.Exec("delete from gateway_schema_version where version_id = 9999"); err != nil {
			return err
		}
		return migrate.Down(ctx, migrate.SQLite, db)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := sqlite.Open(ctx, file, sqlite.Options{}); !errors.As(err, &schema) || schema.Have >= schema.Want {
		t.Errorf("older schema: %v", err)
	}
}

func TestPingTellsOfAClosedFile(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	file := openFile(t, t.TempDir()+"/gateway.db")
	if err := sqlite.Migrate(ctx, file); err != nil {
		t.Fatal(err)
	}
	s, err := sqlite.Open(ctx, file, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Ping(ctx); !errors.Is(err, sqlitefile.ErrClosed) {
		t.Errorf("got %v", err)
	}
}
