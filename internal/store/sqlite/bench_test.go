package sqlite_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/sqlite"
)

// BenchmarkCommit moves positions, as many in a call as a gateway has moved in
// a second.
func BenchmarkCommit(b *testing.B) {
	for _, n := range []int{1, 100, 5000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ctx := context.Background()
			file, err := sqlitefile.Open(b.TempDir() + "/gateway.db")
			if err != nil {
				b.Fatal(err)
			}
			defer file.Close()
			if err := sqlite.Migrate(ctx, file); err != nil {
				b.Fatal(err)
			}
			s, err := sqlite.Open(ctx, file, sqlite.Options{})
			if err != nil {
				b.Fatal(err)
			}
			commits := make([]store.Commit, n)
			for i := range commits {
				name := fmt.Sprintf("ag::workspace::implementation::%d", i)
				commits[i] = store.Commit{Identity: name, Address: name, Epoch: 1}
			}
			b.ReportAllocs()
			for b.Loop() {
				for i := range commits {
					commits[i].Position += 1000
				}
				if err := s.Commit(ctx, commits); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
