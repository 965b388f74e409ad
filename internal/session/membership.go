package session

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/store"
)

// enter refuses a principal whose workspace does not exist, and creates the
// workspace if naming it does that.
func (m *Manager) enter(ctx context.Context, p *acl.Principal, c *auth.Credential) error {
	if !p.Kind.WorkspaceScoped() || p.Workspace == "" {
		return nil
	}
	err := m.o.Router.Spaces().Ensure(ctx, p.Workspace, c.Subject)
	rest, resting := errors.AsType[*store.RestError](err)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, router.ErrNoWorkspace):
		return status.Error(codes.FailedPrecondition, router.NoWorkspace(p.Workspace))
	case resting:
		return unavailable(rest.After, "workspace %q was deleted a moment ago; connect again", p.Workspace)
	}
	m.o.Logger.Warn("a workspace could not be created", "workspace", p.Workspace, "error", err)
	return status.Error(codes.Unavailable, "the workspace could not be created; connect again")
}

// The codes of signals that tell of a loss.
const (
	signalWorkspace  = "WORKSPACE_DELETED"
	signalMembership = "MEMBERSHIP_REVOKED"
)

// dismissed ends a session whose workspace is gone, or whose user may not be in it
// any more, and reports whether it is one. It is asked when something
// was lost, and about once a second.
func (s *Session) dismissed() bool {
	at := s.place.Load()
	ws := at.workspace
	if !s.kind.WorkspaceScoped() || ws == "" {
		return false
	}
	r := s.m.o.Router
	era, exists := r.Spaces().Check(ws)
	switch {
	case !exists || era != at.era:
		s.putOut(codes.PermissionDenied, signalWorkspace, fmt.Sprintf("workspace %q was deleted", ws))
	case s.kind == acl.User && !r.Members().MayEnter(s.claim.UserID, ws, s.life.held.Load().credential.Scope()):
		s.putOut(codes.PermissionDenied, signalMembership, fmt.Sprintf("the user is no member of workspace %q any more", ws))
	default:
		return false
	}
	return true
}

// lose ends the sessions that a loss concerns.
func (m *Manager) lose(l router.Loss) {
	for _, s := range m.all() {
		if s.place.Load().workspace == l.Workspace {
			s.dismissed()
		}
	}
}
