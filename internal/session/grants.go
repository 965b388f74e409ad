package session

import (
	"context"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/grants"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Grants keeps who may act for whom: a [grants.Service].
type Grants interface {
	// Operate and Resolve answer what a client asks; the error is the one in the
	// answer.
	Operate(ctx context.Context, c *grants.Caller, op *aetherv1.AuthorityGrantOperation) (*aetherv1.AuthorityGrantResponse, *wireerr.Error)
	Resolve(ctx context.Context, c *grants.Caller, r *aetherv1.ResolveAuthorityRequest) (*aetherv1.ResolveAuthorityResponse, *wireerr.Error)
	// SessionEnded ends what was to last as long as a session. It does not wait.
	SessionEnded(id string)
}

// caller is the session's principal as it is now.
func (s *Session) caller() *grants.Caller {
	p := s.principal
	c := s.life.held.Load().credential
	proof := &grants.Proof{Type: string(c.Type), ID: c.ID, Fingerprint: c.Fingerprint, Subject: c.Subject, User: c.User}
	if c.Type == auth.TypeAPIKey {
		proof.KeyID = c.KeyID
	}
	if !c.IssuedAt.IsZero() {
		proof.IssuedAt = c.IssuedAt.Unix()
	}
	return &grants.Caller{Principal: &p, Session: s.id, Proof: proof}
}

// grantOp answers an operation on grants, later.
func (s *Session) grantOp(op *aetherv1.AuthorityGrantOperation) {
	id, ok := s.askable(op.GetRequestId())
	if !ok {
		return
	}
	c := s.caller()
	s.asked(id, s.later(proto.Size(op), func(ctx context.Context) {
		answer, err := s.m.o.Grants.Operate(ctx, c, op)
		if err != nil {
			s.record("grant", grantOf(op), err)
		}
		s.urgent(frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_AuthorityGrant{AuthorityGrant: answer}}))
	}))
}

// grantOf names the grant that an operation is about.
func grantOf(op *aetherv1.AuthorityGrantOperation) string {
	for _, id := range []string{
		op.GetGrantId(), op.GetDeriveRequest().GetParentGrantId(), op.GetDeriveForTargetRequest().GetParentGrantId(), op.GetRenewRequest().GetGrantId(),
	} {
		if id != "" {
			return id
		}
	}
	return ""
}

// resolve answers who may act for whom, later.
func (s *Session) resolve(r *aetherv1.ResolveAuthorityRequest) {
	id, ok := s.askable(r.GetRequestId())
	if !ok {
		return
	}
	c := s.caller()
	s.asked(id, s.later(proto.Size(r), func(ctx context.Context) {
		answer, err := s.m.o.Grants.Resolve(ctx, c, r)
		if err != nil {
			s.record("resolve authority", r.GetGrantId(), err)
		}
		s.urgent(frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_ResolveAuthorityResponse{ResolveAuthorityResponse: answer}}))
	}))
}

// askable refuses what cannot be answered at all.
func (s *Session) askable(id string) (string, bool) {
	switch {
	case len(id) > maxRequestText:
		s.refuse("", wireerr.New(wireerr.InvalidArgument, "request_id has %d bytes, %d are allowed", len(id), maxRequestText))
	case s.m.o.Grants == nil:
		s.refuse(id, wireerr.New(wireerr.NotImplemented, "authority grants are not supported"))
	default:
		return id, true
	}
	return "", false
}

func (s *Session) asked(id string, err *wireerr.Error) {
	if err != nil {
		s.refuse(id, err)
	}
}

// maxTold bounds the revocations of which a session is told at once; others show
// when the grant is used.
const maxTold = 100

// GrantsRevoked tells the sessions of this gateway that are the subject or the
// delegate of grants which were revoked.
func (m *Manager) GrantsRevoked(list []grants.Revoked) {
	by := map[string][]int{} // by identity, user or session
	for i, r := range list {
		seen := map[string]bool{"": true}
		for _, id := range []string{r.Subject, r.Delegate} {
			if !seen[id] {
				seen[id] = true
				by[id] = append(by[id], i)
			}
		}
	}
	for _, s := range m.all() {
		told := map[int]bool{}
		for _, id := range []string{s.identity, s.claim.UserID} {
			for _, i := range by[id] {
				if id == "" || told[i] || len(told) >= maxTold || s.over() {
					continue
				}
				if r := list[i]; r.Delegate != id || r.Session == "" || r.Session == s.id || r.Subject == id {
					told[i] = true
					s.urgent(revocationFrame(r))
				}
			}
		}
	}
}

func revocationFrame(r grants.Revoked) []byte {
	return frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_AuthorityGrantRevocation{
		AuthorityGrantRevocation: &aetherv1.AuthorityGrantRevocation{
			GrantId: r.ID, RootGrantId: r.RootID, Reason: r.Reason, RevokedAt: r.At.Unix(), Cascade: true,
		},
	}})
}
