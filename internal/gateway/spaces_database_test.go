package gateway_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/migrate"
	"github.com/aether-gateway/gateway/internal/store/postgres"
	"github.com/aether-gateway/gateway/internal/testservices"
)

func migrateUp(url string) error {
	return postgres.WithDB(context.Background(), url, func(ctx context.Context, db *sql.DB) error { return migrate.Up(ctx, migrate.Postgres, db) })
}

// onPostgres gives each gateway a store of its own on one database.
func onPostgres(t *testing.T) func(*gateway.Options, func() time.Time) {
	t.Helper()
	url := testservices.PostgresLike(t, migrateUp).URL()
	return func(o *gateway.Options, now func() time.Time) {
		s, err := postgres.Open(context.Background(), url, postgres.Options{Now: now})
		if err != nil {
			t.Error(err)
			return
		}
		t.Cleanup(func() { _ = s.Close() })
		o.Positions, o.Members, o.Workspaces, o.Rules, o.Feed = s, s, s, s, s
	}
}

// A database that hangs or dies costs operators a retry and newcomers a
// moment; who is connected goes on, and tasks with them. Nothing is half-done, and what was changed
// behind a gateway's back is known when the database answers again.
func Test42DatabaseAway(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	db := testservices.NewPostgres(t)
	check(t, migrateUp(db.URL()))
	open := func() *postgres.Store {
		s, err := postgres.Open(ctx, db.URL(), postgres.Options{Timeout: time.Second})
		check(t, err)
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	own, operator := open(), open()
	g := gatewaytest.Start(t, gatewaytest.Shared(t), func(o *gateway.Options) {
		o.AutoCreate = false
		o.Positions, o.Members, o.Workspaces, o.Rules, o.Feed = own, own, own, own, own
		o.Tasks, o.TaskGrace = own, shortGrace
	})
	r := &realm{a: g, b: g}
	for _, name := range []string{"w", "v"} {
		r.create(t, name)
	}
	service, agent, other := r.service(t, g), r.agent(t, g, "w", "1"), r.agent(t, g, "v", "1")
	talks := func(text string) {
		t.Helper()
		if code := answers(service, send("ag::v::echo::1", text, text)); code != "" {
			t.Errorf("a send: %s", code)
		}
		if m := other.Message(); string(m.GetPayload()) != text {
			t.Errorf("delivered: %q", m.GetPayload())
		}
	}

	graceEnds(t, g)
	work := newLasting(t, g)

	db.Stop()
	talks("while it hangs")
	work.refused(t)
	began := time.Now()
	_, _, create := g.Router.CreateWorkspace(ctx, "x", "test")
	for what, err := range map[string]error{
		"create": create, "delete": g.Router.DeleteWorkspace(ctx, "v"), "rule": g.Router.RuleMember(ctx, "v", "u", store.RuledIn),
	} {
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := r.user(t, g, "1", "v"); status.Code(err) != codes.Unavailable {
		t.Errorf("a user connects: %v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %v", took)
	}
	talks("still")
	db.Cont()

	// What failed was not done, or wholly: it can be repeated.
	eventually(t, "the database answers", func() bool { return own.Ping(ctx) == nil })
	if _, _, err := g.Router.CreateWorkspace(ctx, "x", "test"); err != nil {
		t.Errorf("create again: %v", err)
	}
	talks("again")
	db.Kill()
	talks("while it is dead")
	work.refused(t)
	db.Start()
	work.goesOn(t)
	eventually(t, "the operator deletes a workspace", func() bool {
		deleted, err := operator.DeleteWorkspace(ctx, "w")
		return err == nil && deleted
	})
	ended(t, agent, "WORKSPACE_DELETED")
	talks("after all")
}
