package session

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/auth"
)

// login finds the credential of a connection, checks it and binds the identity to
// it. What fails counts against the address. The error is the stream's status.
func (m *Manager) login(ctx context.Context, st Stream, init *aetherv1.InitConnection, id auth.Identity) (acl.Principal, *auth.Credential, error) {
	shown := auth.Shown{Authorization: st.Authorization(), Init: init.GetCredentials(), Transport: st.Transport()}
	principal, credential, err := m.o.Verifier.Authenticate(ctx, shown, id)
	if err == nil {
		err = m.revoked(credential, id.String())
	}
	if err != nil {
		return acl.Principal{}, nil, m.refusal(shown.Transport, err)
	}
	m.o.Failures.Succeeded(shown.Transport.Peer)
	return principal, credential, nil
}

// loginIn is login that lets a user begin in a workspace into which an operator
// has put them, whatever their credential says of it (gateway.md 4.2).
func (m *Manager) loginIn(ctx context.Context, st Stream, init *aetherv1.InitConnection, id auth.Identity) (acl.Principal, *auth.Credential, error) {
	first := id.Workspace
	if id.Kind != acl.User || !m.o.Router.Members().PutIn(id.UserID, first) {
		return m.login(ctx, st, init, id)
	}
	id.Workspace = ""
	principal, credential, err := m.login(ctx, st, init, id)
	principal.Workspace = first
	return principal, credential, err
}

// slowed counts a connection that is told to come back later.
func (m *Manager) slowed(wait time.Duration) error {
	m.stats.Slowed.Add(1)
	return auth.Slowed(wait)
}

// glance turns an address away that does nothing but fail, before anything is
// done for it.
func (m *Manager) glance(st Stream) error {
	wait := m.o.Failures.Admit(st.Transport().Peer)
	if wait == 0 {
		return nil
	}
	err := m.slowed(wait)
	m.refused(st, nil, err)
	return err
}

// refusal is the status for a credential that was refused, which counts against
// its address.
func (m *Manager) refusal(t auth.Transport, err error) error {
	code := auth.Code(err)
	switch code {
	case codes.Unauthenticated, codes.PermissionDenied:
	default: // nothing was tried out
		return status.Error(code, err.Error())
	}
	m.entry.giveBack()
	wait, begins := m.o.Failures.Failed(t.Peer)
	if begins {
		m.o.Logger.Warn("credentials from an address fail again and again; what fails there is told to come back later", "address", t.Peer.String())
	}
	if wait > 0 {
		return m.slowed(wait)
	}
	if over, ok := errors.AsType[*auth.KeyOver](err); ok {
		return &keyOver{status.New(code, err.Error()), over.ID}
	}
	return status.Error(code, err.Error())
}

// keyOver is a status, and for the audit the API key because of which.
type keyOver struct {
	status *status.Status
	key    string
}

func (k *keyOver) Error() string { return k.status.Err().Error() }

// GRPCStatus is what the client gets.
func (k *keyOver) GRPCStatus() *status.Status { return k.status }
