package grants

import (
	"context"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/policy"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Resolve answers whether an actor may act for a subject by a grant, to those
// whom the grant concerns. The actor is the caller if none is named.
func (s *Service) Resolve(ctx context.Context, c *Caller, r *aetherv1.ResolveAuthorityRequest) (*aetherv1.ResolveAuthorityResponse, *wireerr.Error) {
	answer := &aetherv1.ResolveAuthorityResponse{RequestId: r.GetRequestId()}
	authority, err := s.resolve(ctx, c, r)
	if err != nil {
		answer.Error = err.Error()
		return answer, err
	}
	answer.Ok, answer.Authority = true, authority
	return answer, nil
}

func (s *Service) resolve(ctx context.Context, c *Caller, r *aetherv1.ResolveAuthorityRequest) (*aetherv1.ResolvedAuthority, *wireerr.Error) {
	actor := refOf(c.Principal)
	if a := r.GetActor(); a != nil {
		var err *wireerr.Error
		if actor, err = parseRef("actor", a.GetPrincipalType(), a.GetPrincipalId()); err != nil {
			return nil, err
		}
	}
	g, err := s.seen(ctx, c, r.GetGrantId())
	if err != nil {
		return nil, err
	}
	h := s.find(g.ID)
	if h == nil || h.ended(s.o.Now()) != "" && g.RevokedAt.IsZero() {
		if away := s.Look(ctx); away != nil {
			return nil, unavailable(away)
		}
		if h = s.find(g.ID); h == nil {
			return nil, invalid("the grant ended long ago")
		}
	}
	switch {
	case !isActor(actor, h):
		return nil, invalid("the actor is not the grant's delegate")
	case r.GetSubject() != nil && !h.isSubject(r.GetSubject()):
		return nil, invalid("the subject is not the grant's")
	case r.GetAudienceType() != "" && r.GetAudienceType() != g.AudienceType, r.GetAudienceId() != "" && r.GetAudienceId() != g.AudienceID:
		return nil, invalid("the audience is not the grant's")
	}
	if err := s.chain(h, nil); err != nil {
		return nil, err
	}
	return &aetherv1.ResolvedAuthority{
		Actor: actor.wire(), Subject: ref{g.SubjectType, g.SubjectID}.wire(),
		Grant: &aetherv1.AuthorityGrantInfo{
			GrantId: g.ID, SubjectType: g.SubjectType, SubjectId: g.SubjectID, RootSubjectType: g.SubjectType, RootSubjectId: g.SubjectID,
			AudienceType: g.AudienceType, AudienceId: g.AudienceID, MaxAccessLevel: h.terms.Level, WorkspaceScope: h.terms.Workspaces, ExpiresAt: unix(g.ExpiresAt),
		},
	}, nil
}

// isActor reports whether an actor is the delegate of a grant, at least in one of
// its windows.
func isActor(actor ref, h *held) bool {
	if p, err := policy.PrincipalOf(actor.id); err == nil {
		return isRef(h.DelegateType, h.DelegateID, p)
	}
	return actor.kind == acl.User.String() && actor.same(ref{h.DelegateType, h.DelegateID})
}
