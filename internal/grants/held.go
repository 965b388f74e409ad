package grants

import (
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/policy"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/subject"
)

// held is a grant of the copy, ready to be asked. It is immutable but for void.
type held struct {
	store.Grant
	terms      terms // without what is for people only
	workspaces acl.WorkspaceSet
	patterns   []*subject.Pattern // nil: all addresses
	operations operations
	subject    acl.Principal // of a user in several workspaces without one
	onBehalf   []byte        // the subject, encoded
	// unreadable: it was written by a newer gateway, say; it stays void.
	unreadable bool
	// void: what it was made with has been revoked.
	void atomic.Bool
}

// hold compiles a stored grant.
func hold(g store.Grant) (*held, error) {
	t, err := parseTerms(g.Terms)
	if err != nil {
		return nil, err
	}
	h := &held{Grant: g, terms: t, workspaces: workspaceSet(t.Workspaces)}
	if h.patterns, err = compilePatterns(t.Patterns); err != nil {
		return nil, err
	}
	h.operations, _ = operationsOf(t.Operations) // an unknown one is for newer gateways
	p, err := policy.PrincipalOf(t.As, t.Scope...)
	if err != nil {
		return nil, err
	}
	h.subject = *p
	if p.Kind == acl.User {
		h.subject.Workspace, _ = h.workspaces.Only()
	}
	h.onBehalf, err = proto.Marshal(&aetherv1.PrincipalRef{PrincipalType: g.SubjectType, PrincipalId: g.SubjectID})
	// The copy keeps what is asked, not what is told.
	h.Terms, h.terms.Reason, h.terms.Meta = "", "", nil
	return h, err
}

// ended is why the grant itself does not hold, "" if it does.
func (h *held) ended(now time.Time) string {
	switch {
	case !h.RevokedAt.IsZero(), h.void.Load():
		return "the grant was revoked"
	case !now.Before(h.ExpiresAt):
		return "the grant has expired"
	}
	return ""
}

// isFor reports whether a principal in a session is the delegate.
func (h *held) isFor(p *acl.Principal, session string) bool {
	if h.AudienceType == audienceSession && h.AudienceID != session {
		return false
	}
	return isRef(h.DelegateType, h.DelegateID, p)
}

// ofTask reports whether it is the grant that a task carries, not one for the
// worker of a task, whom clients name by an identity.
func (h *held) ofTask() bool {
	return h.AudienceType == audienceTask && !strings.Contains(h.AudienceID, "::")
}

// takes reports whether the patterns take an address.
func (h *held) takes(a string) bool {
	if h.patterns == nil {
		return true
	}
	return slices.ContainsFunc(h.patterns, func(p *subject.Pattern) bool { return p.Match(a) })
}

// as is the subject in a workspace. It is not to be changed.
func (h *held) as(workspace string) *acl.Principal {
	if h.subject.Kind != acl.User || workspace == "" || workspace == h.subject.Workspace {
		return &h.subject
	}
	p := h.subject
	p.Workspace = workspace
	return &p
}
