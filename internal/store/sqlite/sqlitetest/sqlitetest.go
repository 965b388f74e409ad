// Package sqlitetest gives tests files with the gateway's tables.
package sqlitetest

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/store/sqlite"
)

// template returns what a new file holds after the migrations. They run once for
// all tests of a binary: they take longer than most of the tests.
var template = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "aether-sqlitetest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "template.db")
	file, err := sqlitefile.Open(path)
	if err != nil {
		return nil, err
	}
	if err := sqlite.Migrate(context.Background(), file); err != nil {
		_ = file.Close()
		return nil, err
	}
	if err := file.Close(); err != nil { // all of it is in the one file then
		return nil, err
	}
	return os.ReadFile(path)
})

// Open opens the file at a path as [sqlitefile.Open] does. If there is none it
// makes one with all tables in it. The caller closes it.
func Open(tb testing.TB, path string) *sqlitefile.File {
	tb.Helper()
	if _, err := os.Stat(path); os.IsNotExist(err) {
		content, err := template()
		if err == nil {
			err = os.WriteFile(path, content, 0o600)
		}
		if err != nil {
			tb.Fatalf("sqlitetest: %v", err)
		}
	}
	file, err := sqlitefile.Open(path)
	if err != nil {
		tb.Fatalf("sqlitetest: %v", err)
	}
	return file
}
