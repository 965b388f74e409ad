package gateway

import (
	"context"
	"errors"
	"time"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/grants"
	"github.com/aether-gateway/gateway/internal/session"
)

// keepGrants begins to keep who may act for whom, if anybody does.
func (g *Gateway) keepGrants(o Options) session.Grants {
	if o.Grants == nil {
		return nil
	}
	g.Grants = grants.New(grants.Options{
		Store: o.Grants, Feed: o.Feed, Decide: g.Router.Decide, Rules: g.Router.Rules(), Members: g.Router.Members(), Presence: o.Presence,
		Revoked: g.proofRevoked, TaskOver: taskOver(o), Audit: g.Audit, Logger: o.Logger, Now: o.Now,
		MaxPerSubject: o.GrantLimits.PerSubject, Lifetime: o.GrantLimits.Lifetime, MaxLifetime: o.GrantLimits.MaxLifetime,
	})
	g.Router.ActUnder(g.Grants)
	return g.Grants
}

// taskOver says of a task whether it has ended; nil without tasks.
func taskOver(o Options) func(context.Context, string) (bool, error) {
	if o.Tasks == nil {
		return nil
	}
	return func(ctx context.Context, id string) (bool, error) {
		t, ok, err := o.Tasks.Task(ctx, id)
		return err == nil && (!ok || t.State.Over()), err
	}
}

// proofRevoked says whether the credential that a grant was made with counts no
// more.
func (g *Gateway) proofRevoked(p *grants.Proof, identity string) bool {
	if g.Trust == nil {
		return false
	}
	c := auth.Credential{Type: auth.Type(p.Type), KeyID: p.KeyID, Fingerprint: p.Fingerprint}
	c.ID, c.Subject, c.User = p.ID, p.Subject, p.User
	if p.IssuedAt != 0 {
		c.IssuedAt = time.Unix(p.IssuedAt, 0)
	}
	// That nothing is known yet revokes nothing for ever: the gateway is not
	// ready then.
	return errors.Is(g.Trust.Revoked(&c, identity), auth.ErrRevoked)
}
