package postgres_test

import (
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/store/postgres"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// TestPasses: what waiting may mend, and what it does not.
func TestPasses(t *testing.T) {
	t.Parallel()
	db := testservices.Postgres(t)
	const parameters = "?sslmode=disable"
	server, _, _ := strings.Cut(db.URL(), parameters)
	server = server[:strings.LastIndexByte(server, '/')]
	_, hostPort, _ := strings.Cut(server, "@")
	for name, tt := range map[string]struct {
		url    string
		passes bool
	}{
		"tables are missing":   {db.URL(), false},
		"no such database":     {server + "/no_such_database" + parameters, false},
		"no such user":         {"postgres://nobody@" + hostPort + "/postgres" + parameters, false},
		"no TLS":               {server + "/postgres?sslmode=require", false},
		"not a URL":            {"postgres://h/d?pool_max_conns=x", false},
		"nothing there":        {"postgres://u@127.0.0.1:1/d" + parameters, true},
		"nothing there, TLS":   {"postgres://u@127.0.0.1:1/d?sslmode=require", true},
		"no such name":         {"postgres://u@host.invalid/d" + parameters, true},
		"no such name, either": {"postgres://u@host.invalid/d", true},
	} {
		s, err := postgres.Open(t.Context(), tt.url, postgres.Options{})
		if err == nil {
			s.Close()
			t.Errorf("%s: it opens", name)
		} else if got := postgres.Passes(err); got != tt.passes {
			t.Errorf("%s: passes %v: %v", name, got, err)
		}
	}
}
