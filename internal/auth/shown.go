package auth

import (
	"context"
	"crypto/x509"
	"errors"
	"net/netip"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
)

// Transport is what is known of a connection beside what its client says of
// itself. The zero value is a connection of which nothing is known.
type Transport struct {
	// Peer is the other end; invalid if it has no IP address.
	Peer netip.Addr
	// Forwarded says that a proxy names itself, so that Peer is not the client.
	Forwarded bool
	// Certificates is the client's certificate, first, and those that vouch for
	// it, as the handshake has verified them; empty without one.
	Certificates []*x509.Certificate
}

// Shown is everything by which a connection may prove who it is.
type Shown struct {
	Authorization []string          // the values of the metadata of that name
	Init          map[string]string // the credentials of the init frame
	Transport     Transport
}

// anonymousLife is how long a connection without a credential may last.
const anonymousLife = 24 * time.Hour

// Authenticate finds the credential of a connection, checks it, and says whether
// it proves the claimed identity. Its errors are those of FromMetadataAndInit,
// Verify and Bind, and ErrCertificate.
//
// A token or an API key goes before a certificate: that is then only the
// connection's. Without either, the client's certificate stands in if the table
// has an entry for it; without a certificate, agents, tasks and users on loopback
// need nothing if Options.Anonymous says so.
func (v *Verifier) Authenticate(ctx context.Context, shown Shown, id Identity) (acl.Principal, *Credential, error) {
	c, err := v.Shown(ctx, shown)
	if errors.Is(err, ErrNoCredential) && v.allowsAnonymous(shown.Transport, id.Kind) {
		c, err = v.anonymousCredential(id), nil
	}
	if err != nil {
		return acl.Principal{}, nil, err
	}
	p, err := c.Bind(id)
	if err != nil {
		return acl.Principal{}, nil, err
	}
	return p, c, nil
}

// Shown finds the credential of a call that claims no identity, such as an
// operator's, and checks it. It is Authenticate without the last step.
func (v *Verifier) Shown(ctx context.Context, shown Shown) (*Credential, error) {
	presented, err := FromMetadataAndInit(shown.Authorization, shown.Init)
	switch {
	case err == nil:
		return v.Verify(ctx, presented.Token())
	case errors.Is(err, ErrNoCredential) && len(shown.Transport.Certificates) > 0:
		return v.certificates.credential(shown.Transport.Certificates, v.clock())
	}
	return nil, err
}

// allowsAnonymous says whether a connection needs no credential. One that a
// proxy on this machine passes on is not one of this machine.
func (v *Verifier) allowsAnonymous(t Transport, kind acl.Kind) bool {
	if !v.anonymous || t.Forwarded || !t.Peer.Unmap().IsLoopback() {
		return false
	}
	switch kind {
	case acl.Agent, acl.UniqueTask, acl.Task, acl.User:
		return true
	}
	return false
}

// anonymousCredential proves just the identity that is claimed. What Bind would
// refuse of it, it refuses.
func (v *Verifier) anonymousCredential(id Identity) *Credential {
	c := Claims{Subject: "anonymous", Impl: id.Implementation, Spec: id.Specifier, User: id.UserID, ExpiresAt: v.clock().Add(anonymousLife)}
	switch id.Kind {
	case acl.Agent:
		c.Kind = KindAgent
	case acl.UniqueTask:
		c.Kind = KindTask
	case acl.Task:
		c.Kind, c.Spec = KindTask, "" // the gateway chooses its id
	case acl.User:
		c.Kind = KindUser
	}
	if id.Workspace != "" {
		c.Workspaces = []string{id.Workspace}
	}
	return c.credential(TypeAnonymous)
}
