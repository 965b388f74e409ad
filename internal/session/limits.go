package session

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/limits"
)

// crowdedRetry is what a client is told to wait for whom there is no room: until
// others have left, which nobody knows.
const crowdedRetry = 5 * time.Second

// account opens what a session sends on, or refuses a session that is one too
// many.
func (m *Manager) account(ctx context.Context, s *Session, c *auth.Credential) (*limits.Account, error) {
	a, err := m.o.Limits.Open(ctx, limits.Party{
		Identity: s.identity, Source: source(s, c), Workspace: s.principal.Workspace, Resumed: s.resumed,
	})
	var crowd *limits.SessionsError
	switch {
	case err == nil:
		return a, nil
	case errors.As(err, &crowd):
		m.stats.Crowded.Add(1)
		return nil, hinted(codes.ResourceExhausted, crowdedRetry, crowd.Error())
	}
	return nil, unavailable(time.Second, "what others have left of the limits could not be asked; connect again")
}

// source names what is limited as one, whatever identities it lets in: a user,
// or a credential. Who needs none is limited by identity alone.
func source(s *Session, c *auth.Credential) string {
	switch {
	case s.kind == acl.User:
		return "user " + s.principal.Address.UserID()
	case c.Type == auth.TypeAnonymous:
		return ""
	case c.Type == auth.TypeAPIKey:
		return "key " + c.KeyID
	case c.ID != "" && c.Type == auth.TypeToken:
		return "token " + c.ID
	}
	return "credential " + c.Fingerprint
}
