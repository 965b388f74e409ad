package gateway

import (
	"github.com/aether-gateway/gateway/internal/session"
	"github.com/aether-gateway/gateway/internal/task"
)

// keepTasks makes the tasks of the gateway, and returns them as sessions see
// them: nil if there are none.
func (g *Gateway) keepTasks(o Options) (session.Tasks, session.Workers) {
	if o.Tasks == nil {
		return nil, o.Workers
	}
	g.Tasks = task.New(task.Options{
		Store: o.Tasks, Router: g.Router, Rules: g.Router.Rules(), Peers: g.Peers, Presence: o.Presence, Audit: g.Audit, Logger: o.Logger, Now: o.Now,
		Exists: func(workspace string) bool { _, exists := g.Router.Spaces().Check(workspace); return exists },
		Grace:  o.TaskGrace, StartDeadline: o.StartDeadline, Retention: o.TaskRetention,
	})
	if o.Workers != nil {
		return g.Tasks, o.Workers
	}
	return g.Tasks, g.Tasks
}
