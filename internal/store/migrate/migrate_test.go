package migrate_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/migrate"
	"github.com/aether-gateway/gateway/internal/testservices"
	"github.com/aether-gateway/gateway/migrations"
	_ "github.com/jackc/pgx/v5/stdlib" // registers the driver pgx
)

func TestMain(m *testing.M) { os.Exit(testservices.Main(m)) }

func openPostgres(t *testing.T, url string) *sql.DB {
	t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// each runs a test with an empty database of each engine.
func each(t *testing.T, test func(t *testing.T, engine migrate.Engine, db *sql.DB)) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, migrate.Postgres, openPostgres(t, testservices.Postgres(t).URL()))
	})
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		file, err := sqlitefile.Open(t.TempDir() + "/gateway.db")
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := file.Close(); err != nil {
				t.Error(err)
			}
		}()
		err = file.Exclusive(context.Background(), func(db *sql.DB) error {
			test(t, migrate.SQLite, db)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// schema returns what the database holds besides the table of versions.
func schema(t *testing.T, engine migrate.Engine, db *sql.DB) []string {
	t.Helper()
	query := "select type || ' ' || name || ' ' || coalesce(sql, '') from sqlite_schema where tbl_name not like 'gateway_schema_version%' and name not like 'sqlite_%'"
	if engine == migrate.Postgres {
		query = `select 'column ' || table_name || ' ' || column_name || ' ' || data_type || ' ' || is_nullable || ' ' || coalesce(collation_name, '')
				from information_schema.columns where table_schema = 'public' and table_name <> 'gateway_schema_version'
			union all select indexdef from pg_indexes where schemaname = 'public' and tablename <> 'gateway_schema_version'
			union all select conname || pg_get_constraintdef(oid) from pg_constraint where connamespace = 'public'::regnamespace and conrelid <> 'gateway_schema_version'::regclass`
	}
	rows, err := db.Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var all []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

func TestUpDownUp(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, engine migrate.Engine, db *sql.DB) {
		ctx := context.Background()
		status := func(applied bool) int {
			t.Helper()
			steps, err := migrate.Status(ctx, engine, db)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range steps {
				if s.AppliedAt.IsZero() == applied {
					t.Errorf("%s: applied at %v", s.Name, s.AppliedAt)
				}
			}
			return len(steps)
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		steps := status(false)
		if steps == 0 {
			t.Fatal("no migrations")
		}
		must(migrate.Up(ctx, engine, db))
		status(true)
		first := schema(t, engine, db)
		if len(first) == 0 {
			t.Fatal("up made nothing")
		}
		must(migrate.Up(ctx, engine, db)) // nothing to do
		for range steps + 1 {             // the last one has nothing to do
			must(migrate.Down(ctx, engine, db))
		}
		status(false)
		if left := schema(t, engine, db); len(left) != 0 {
			t.Errorf("down left %q", left)
		}
		must(migrate.Up(ctx, engine, db))
		status(true)
		if second := schema(t, engine, db); !slices.Equal(first, second) {
			t.Errorf("first up: %q\nsecond up: %q", first, second)
		}
	})
}

// Gateways that start together may all migrate.
func TestUpTogether(t *testing.T) {
	t.Parallel()
	url := testservices.Postgres(t).URL()
	var all sync.WaitGroup
	for range 4 {
		db := openPostgres(t, url)
		all.Go(func() {
			if err := migrate.Up(context.Background(), migrate.Postgres, db); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// A deployment of the first release is brought forward by two gateways that
// start together, and loses no position; one step at a time it goes back.
func TestFromTheFirstRelease(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	each(t, func(t *testing.T, engine migrate.Engine, db *sql.DB) {
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		version := func() (have int64) {
			t.Helper()
			get := func(ctx context.Context, query string, dest *int64) error {
				return db.QueryRowContext(ctx, query).Scan(dest)
			}
			err := migrate.Check(ctx, engine, get)
			var schema *store.SchemaError
			if errors.As(err, &schema) {
				return schema.Have
			}
			must(err)
			steps, err := migrate.Status(ctx, engine, db)
			must(err)
			return steps[len(steps)-1].Version
		}
		must(migrate.Up(ctx, engine, db))
		latest := version()
		for v := latest; v > 1; v-- {
			if got := version(); got != v {
				t.Fatalf("version %d, want %d", got, v)
			}
			must(migrate.Down(ctx, engine, db))
		}
		_, err := db.ExecContext(ctx, "insert into positions (identity, address, position, epoch, moved_at) values ('i', 'a', 7, 1, 1)")
		must(err)
		if engine == migrate.Postgres {
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() {
					if err := migrate.Up(ctx, engine, db); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		} else { // has its lock elsewhere: on the file
			must(migrate.Up(ctx, engine, db))
		}
		if got := version(); got != latest {
			t.Errorf("version %d, want %d", got, latest)
		}
		var position int64
		must(db.QueryRowContext(ctx, "select position from positions where identity = 'i'").Scan(&position))
		if position != 7 {
			t.Errorf("position %d", position)
		}
	})
}

func TestEnginesHaveTheSameFiles(t *testing.T) {
	t.Parallel()
	names := func(engine migrate.Engine) (names []string) {
		files, err := fs.ReadDir(migrations.Files, string(engine))
		if err != nil {
			t.Fatal(err)
		}
		for n, f := range files {
			if !strings.HasPrefix(f.Name(), fmt.Sprintf("%03d_", n+1)) {
				t.Errorf("%s is not number %d", f.Name(), n+1)
			}
			names = append(names, f.Name())
		}
		return names
	}
	if p, s := names(migrate.Postgres), names(migrate.SQLite); !slices.Equal(p, s) {
		t.Errorf("postgres has %q, sqlite has %q", p, s)
	}
}

func TestUnknownEngine(t *testing.T) {
	t.Parallel()
	err := migrate.Check(context.Background(), "oracle", nil)
	if err == nil {
		t.Error("no error")
	}
}
