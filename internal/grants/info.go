package grants

import (
	"errors"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/store"
)

// Info is a grant as those whom it concerns are told of it.
func Info(g *store.Grant) *aetherv1.ACLAuthorityGrantInfo {
	t, _ := parseTerms(g.Terms) // one that cannot be read allows nothing
	info := &aetherv1.ACLAuthorityGrantInfo{
		GrantId: g.ID, RootGrantId: g.RootID, ParentGrantId: g.ParentID,
		Subject: ref{g.SubjectType, g.SubjectID}.wire(), RootSubject: ref{g.SubjectType, g.SubjectID}.wire(),
		Delegate: ref{g.DelegateType, g.DelegateID}.wire(), IssuedBy: issuer(g.IssuedBy),
		MayDelegate: t.Hops > 0, RemainingHops: t.Hops, WorkspaceScope: t.Workspaces, OperationScope: t.Operations,
		MaxAccessLevel: t.Level, AccessLevelName: levelNames[t.Level],
		AudienceType: g.AudienceType, AudienceId: g.AudienceID, ValidWhileAudienceActive: t.WhileActive,
		ExpiresAt: unix(g.ExpiresAt), RenewableUntil: unix(g.RenewableUntil), RenewedAt: unix(g.RenewedAt), CreatedAt: unix(g.CreatedAt),
		Revoked: !g.RevokedAt.IsZero(), RevokedAt: unix(g.RevokedAt), Reason: t.Reason, Metadata: t.Meta,
	}
	if len(t.Patterns) > 0 {
		info.ResourceScope = []*aetherv1.ACLAuthorityGrantResourceScopeEntry{{ResourceType: "address", Patterns: t.Patterns}}
	}
	return info
}

// issuer is the reference to who issued a grant, which may be an operator.
func issuer(by string) *aetherv1.PrincipalRef {
	if r, err := parseAny(by); err == nil {
		return r.wire()
	}
	return &aetherv1.PrincipalRef{PrincipalType: "operator", PrincipalId: by}
}

// unix is in whole seconds, as the protocol has it; 0 for no time.
func unix(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

func isText(err error) bool { return errors.Is(err, store.ErrText) }
