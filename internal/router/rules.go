package router

import (
	"context"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/policy"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// reloadEvery is after how many looks the rules are read anew whatever their
// version: a restored database may have another past.
const reloadEvery = 20

// Rules returns the rules of operators, which this router keeps up to date.
func (r *Router) Rules() *policy.Book { return r.rules }

// Decide says whether p may send to a: what every path that publishes asks, and
// what is asked about sending without doing so.
func (r *Router) Decide(p *acl.Principal, to address.Address) acl.Decision {
	return acl.DecideWith(p, to, r.members, r.rules)
}

// decideMetrics refuses metrics of a workspace that is named in the message, if
// a rule says so.
func (s *Sender) decideMetrics(to address.Address, workspace string) *wireerr.Error {
	if to.Prefix() != address.PrefixMetric || to.Workspace() != "" || s.principal.Workspace != "" {
		return nil // it has been decided on with its workspace
	}
	if d := acl.DecideMetrics(s.principal, workspace, s.r.rules); !d.Allowed {
		return wireerr.New(wireerr.PermissionDenied, "%s", d.Message(s.principal, to))
	}
	return nil
}

// refreshRules returns what keeps the copy of the rules up to date. Nobody is
// served before it has been read once; when the store is away later, what is
// known stays in force.
func (r *Router) refreshRules() func(context.Context) error {
	n := 0
	return func(ctx context.Context) error {
		if n++; n%reloadEvery == 0 {
			return r.rules.Reload(ctx)
		}
		return r.rules.Refresh(ctx)
	}
}
