package gateway

import (
	"context"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/grants"
	"github.com/aether-gateway/gateway/internal/session"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/task"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// keepTasks makes the tasks of the gateway, and returns them as sessions see
// them: nil if there are none.
func (g *Gateway) keepTasks(o Options) (session.Tasks, session.Workers) {
	if o.Tasks == nil {
		return nil, o.Workers
	}
	g.Tasks = task.New(task.Options{
		Store: o.Tasks, Router: g.Router, Rules: g.Router.Rules(), Peers: g.Peers, Presence: o.Presence, Audit: g.Audit, Logger: o.Logger, Now: o.Now,
		Exists:   func(workspace string) bool { _, exists := g.Router.Spaces().Check(workspace); return exists },
		NewToken: auth.NewTaskToken, Grace: o.TaskGrace, StartDeadline: o.StartDeadline, Retention: o.TaskRetention,
	})
	if g.Grants != nil {
		g.Tasks.Use(nil, taskGrants{g.Grants})
	}
	if o.Workers != nil {
		return g.Tasks, o.Workers
	}
	return g.Tasks, g.Tasks
}

// taskGrants are grants as tasks use them.
type taskGrants struct{ *grants.Service }

// ForTask implements [task.Grants].
func (g taskGrants) ForTask(ctx context.Context, c *task.Caller, a *aetherv1.AuthorizationContext, t *store.Task, to address.Address) (store.TaskGrant, *wireerr.Error) {
	delegate := t.Target
	if t.Mode == store.TaskSelf {
		delegate = c.Identity
	}
	return g.Service.ForTask(ctx, &grants.Caller{Principal: &c.Principal, Session: c.Session}, a, grants.Task{
		ID: t.ID, Workspace: t.Workspace, To: to, Delegate: delegate,
	})
}
