package grants

import (
	"context"
	"fmt"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/policy"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// operatorWindow stands for the window of a user for whom an operator issues a
// grant: rules are over identities, which have one.
const operatorWindow = "operator"

// Issue makes a grant for a subject that need not be connected, for an operator.
// The source session of the request is not looked at, and its audience has to be
// named. Rules on issuing are not: they are operators' own.
func (s *Service) Issue(ctx context.Context, by string, subject *aetherv1.PrincipalRef, r *aetherv1.AuthorityGrantExchangeRequest) (store.Grant, *wireerr.Error) {
	a := exchangeAsked(r)
	if err := a.check(); err != nil {
		return store.Grant{}, err
	}
	of, err := parseRef("subject", subject.GetPrincipalType(), subject.GetPrincipalId())
	if err != nil {
		return store.Grant{}, err
	}
	p, err := subjectOf(of, r.GetWorkspaceScope())
	if err != nil {
		return store.Grant{}, err
	}
	to, err := s.audienceOf(ctx, nil, a, ref{})
	switch {
	case err != nil:
		return store.Grant{}, err
	case to.delegate.kind == "":
		return store.Grant{}, bad("audience is missing: it says who may act")
	}
	g, err := s.first(p, nil, a, to)
	if err != nil {
		return store.Grant{}, err
	}
	g.IssuedBy = by
	return g, s.add(ctx, "grant issue", g)
}

// subjectOf is a principal for whom an operator issues a grant.
func subjectOf(of ref, workspaces []string) (*acl.Principal, *wireerr.Error) {
	id := of.id
	if of.kind == acl.User.String() && of.owner() == id {
		id = fmt.Sprintf("us::%s::%s", id, operatorWindow)
	}
	p, err := policy.PrincipalOf(id)
	if err != nil {
		return nil, bad("subject: %v", err)
	}
	if p.Kind.WorkspaceScoped() && p.Kind != acl.User {
		return p, nil
	}
	if len(workspaces) == 0 {
		return nil, bad("workspace_scope is missing: it says where the grant may be used")
	}
	p.Workspaces = workspaceSet(workspaces)
	return p, nil
}

// List returns up to limit grants after the first offset ones, the newest first,
// and how many there are in all, as the store has them.
func (s *Service) List(ctx context.Context, f store.GrantFilter, offset, limit int) ([]store.Grant, int, error) {
	return s.o.Store.Grants(ctx, f, offset, limit)
}

// Revoke ends a grant and all that derive from it, for an operator, and returns
// how many held. An error is [store.ErrNotFound] or the store's.
func (s *Service) Revoke(ctx context.Context, id, by, reason string) (g store.Grant, n int, err error) {
	g, ok, err := s.o.Store.Grant(ctx, id)
	switch {
	case err != nil && !isText(err):
		return g, 0, err
	case err != nil || !ok:
		return g, 0, store.ErrNotFound
	}
	if n, err = s.o.Store.RevokeGrants(ctx, []string{id}, by, reason); err != nil {
		return g, 0, err
	}
	_ = s.refresh(ctx) // else the feed does it
	if now, ok, err := s.o.Store.Grant(ctx, id); err == nil && ok {
		g = now
	}
	return g, n, nil
}
