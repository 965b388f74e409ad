package session

import (
	"google.golang.org/grpc/codes"

	"github.com/aether-gateway/gateway/internal/auth"
)

// Revocations says which credentials count no more. It is asked when one is
// presented and for every session when [Manager.Recheck] is called, so it answers
// from memory and at once. It is safe for concurrent use.
type Revocations interface {
	// Revoked returns nil, or an error of package auth, for a credential and the
	// identity that it is used for.
	Revoked(c *auth.Credential, identity string) error
}

// Recheck ends the sessions whose credentials count no more. It is called when
// [Options.Revocations] has learned something.
func (m *Manager) Recheck() {
	for _, s := range m.all() {
		s.isRevoked()
	}
}

// isRevoked ends a session whose credential is revoked, and reports whether it
// is.
func (s *Session) isRevoked() bool {
	err := s.m.revoked(s.life.held.Load().credential, s.identity)
	if err == nil {
		return false
	}
	if s.putOut(codes.Unauthenticated, "REVOKED", err.Error()) {
		s.m.stats.CredentialsRevoked.Add(1)
	}
	return true
}
