package gateway

import (
	"github.com/aether-gateway/gateway/internal/orchestrator"
	"github.com/aether-gateway/gateway/internal/session"
	"github.com/aether-gateway/gateway/internal/store"
)

// keepOrchestration makes what starts those who are not there, and returns it as
// sessions see it: nil if nothing can be started. The tasks and the router are
// there; from here on the verifier takes task tokens.
func (g *Gateway) keepOrchestration(o *Options, mailboxes store.Mailboxes) session.Orchestration {
	if o.Implementations == nil {
		return nil
	}
	g.Registry = orchestrator.NewRegistry(o.Implementations, o.Feed, o.Logger)
	if g.Tasks == nil || mailboxes == nil {
		return nil
	}
	g.Orchestration = orchestrator.New(orchestrator.Options{
		Rows: o.Tasks, Tasks: g.Tasks, Registry: g.Registry, Presence: o.Presence, Mail: mail{g.Router, mailboxes}, Logger: o.Logger, Now: o.Now,
		StartDeadline: o.StartDeadline, GraceWindow: o.TaskGrace, MaxAttempts: o.StartAttempts, Budgets: o.StartBudgets,
	})
	g.Tasks.Use(g.Orchestration, nil)
	o.Verifier = o.Verifier.WithTaskTokens(g.Orchestration)
	g.Router.SetStarter(g.Orchestration)
	return g.Orchestration
}
