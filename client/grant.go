package client

import (
	"context"
	"strings"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// CodeGrantInvalid: the grant that was named does not exist, has ended, is
// somebody else's, or does not cover what was to be done.
const CodeGrantInvalid Code = "ERR_GRANT_INVALID"

// GrantTerms are what a grant is to allow. The zero value is what the one who
// gives it may do itself where it is now, for an hour, not to be passed on; of a
// derived grant, what its parent allows.
type GrantTerms struct {
	// Workspaces are where it may be used.
	Workspaces []string
	// Addresses are patterns of those that it reaches, such as "ag::demo::*":
	// "*" is one segment, at the end any number of them.
	Addresses []string
	// Operations are what it is for: "send", "task:create", "kv:read", …
	Operations []string
	// Level is the access level: 10 read, 20 read and write, 30 manage.
	Level int
	// Hops is how often it may be passed on.
	Hops int
	// Expires is when it ends, RenewableUntil until when it may be renewed; zero:
	// the gateway's default, and not at all.
	Expires, RenewableUntil time.Time
	// WhileConnected ends it with the session that it is bound to; of what
	// derives from it, it holds only while its delegate is connected.
	WhileConnected bool
	Reason         string
	Metadata       map[string]string
}

// Grant lets a delegate act for a subject.
type Grant struct {
	ID, RootID, ParentID string
	// Subject is for whom it lets act, Delegate who may. Of users the id is the
	// user's, or one window's identity.
	Subject, Delegate, IssuedBy Principal
	GrantTerms
	// Created, Renewed and RevokedAt are to the second; zero: not.
	Created, Renewed, RevokedAt time.Time
}

func newGrant(i *aetherv1.ACLAuthorityGrantInfo) Grant {
	principal := func(r *aetherv1.PrincipalRef) Principal {
		return Principal{Type: r.GetPrincipalType(), ID: r.GetPrincipalId()}
	}
	at := func(seconds int64) time.Time {
		if seconds == 0 {
			return time.Time{}
		}
		return time.Unix(seconds, 0)
	}
	g := Grant{
		ID: i.GetGrantId(), RootID: i.GetRootGrantId(), ParentID: i.GetParentGrantId(),
		Subject: principal(i.GetSubject()), Delegate: principal(i.GetDelegate()), IssuedBy: principal(i.GetIssuedBy()),
		GrantTerms: GrantTerms{
			Workspaces: i.GetWorkspaceScope(), Operations: i.GetOperationScope(), Level: int(i.GetMaxAccessLevel()), Hops: int(i.GetRemainingHops()),
			Expires: at(i.GetExpiresAt()), RenewableUntil: at(i.GetRenewableUntil()), WhileConnected: i.GetValidWhileAudienceActive(),
			Reason: i.GetReason(), Metadata: i.GetMetadata(),
		},
		Created: at(i.GetCreatedAt()), Renewed: at(i.GetRenewedAt()), RevokedAt: at(i.GetRevokedAt()),
	}
	for _, r := range i.GetResourceScope() {
		g.Addresses = append(g.Addresses, r.GetPatterns()...)
	}
	return g
}

// GrantRevoked: a grant that lets this principal act, or act for it, was revoked,
// and all that derive from it. At most a hundred are told of at once; each is
// refused from now on.
type GrantRevoked struct {
	ID, RootID, Reason string
	At                 time.Time
}

func (GrantRevoked) notice() {}

// identityTypes are the types of principals by the first segment of an identity.
var identityTypes = map[string]string{
	"ag": "agent", "tu": "unique_task", "ta": "non_unique_task", "us": "user", "sv": "service", "br": "bridge", "orc": "orchestrator", "wfe": "workflow_engine",
}

// typeOf is the type of who is named: without "::" it is a user's id.
func typeOf(who string) string {
	prefix, _, identity := strings.Cut(who, "::")
	if !identity {
		return "user"
	}
	return identityTypes[prefix]
}

func scopeOf(addresses []string) []*aetherv1.ACLAuthorityGrantResourceScopeEntry {
	if len(addresses) == 0 {
		return nil
	}
	return []*aetherv1.ACLAuthorityGrantResourceScopeEntry{{ResourceType: "address", Patterns: addresses}}
}

// IssueGrant lets a delegate act for this principal: an agent, a task or a service,
// by its identity ("ag::demo::helper::1"), or a user, by its id. It gives away
// nothing but what this principal may do itself, at the time when it is done; the
// delegate must be permitted to do it, too. Tell the delegate the grant's ID. Safe
// for concurrent use.
func (c *Client) IssueGrant(ctx context.Context, delegate string, t GrantTerms) (Grant, error) {
	return c.exchange(ctx, typeOf(delegate), delegate, t)
}

// IssueSessionGrant is IssueGrant for whoever holds a session, by its id; "" is
// this one.
func (c *Client) IssueSessionGrant(ctx context.Context, sessionID string, t GrantTerms) (Grant, error) {
	return c.exchange(ctx, "session", sessionID, t)
}

func (c *Client) exchange(ctx context.Context, audience, id string, t GrantTerms) (Grant, error) {
	return c.grant(ctx, &aetherv1.AuthorityGrantOperation{
		Op: aetherv1.AuthorityGrantOperation_OP_TYPE_EXCHANGE,
		ExchangeRequest: &aetherv1.AuthorityGrantExchangeRequest{
			AudienceType: audience, AudienceId: id, WorkspaceScope: t.Workspaces, ResourceScope: scopeOf(t.Addresses), OperationScope: t.Operations,
			MaxAccessLevel: int32(t.Level), ValidWhileAudienceActive: t.WhileConnected, ExpiresAt: unixOf(t.Expires), RenewableUntil: unixOf(t.RenewableUntil),
			MayDelegate: t.Hops > 0, RemainingHops: int32(t.Hops), Reason: t.Reason, Metadata: t.Metadata,
		},
	})
}

// DeriveGrant passes on a grant of which this principal is the delegate, as it is
// or narrowed. Safe for concurrent use.
func (c *Client) DeriveGrant(ctx context.Context, parentID, delegate string, t GrantTerms) (Grant, error) {
	return c.grant(ctx, &aetherv1.AuthorityGrantOperation{
		Op: aetherv1.AuthorityGrantOperation_OP_TYPE_DERIVE,
		DeriveRequest: &aetherv1.AuthorityGrantDeriveRequest{
			ParentGrantId: parentID, Delegate: &aetherv1.PrincipalRef{PrincipalType: typeOf(delegate), PrincipalId: delegate},
			WorkspaceScope: t.Workspaces, ResourceScope: scopeOf(t.Addresses), OperationScope: t.Operations,
			MaxAccessLevel: int32(t.Level), ValidWhileAudienceActive: t.WhileConnected, ExpiresAt: unixOf(t.Expires), RenewableUntil: unixOf(t.RenewableUntil),
			MayDelegate: t.Hops > 0, RemainingHops: int32(t.Hops), Reason: t.Reason, Metadata: t.Metadata,
		},
	})
}

// GetGrant returns a grant that this principal has to do with.
func (c *Client) GetGrant(ctx context.Context, id string) (Grant, error) {
	return c.grant(ctx, &aetherv1.AuthorityGrantOperation{Op: aetherv1.AuthorityGrantOperation_OP_TYPE_GET, GrantId: id})
}

// RenewGrant moves the expiry of a grant, up to its RenewableUntil.
func (c *Client) RenewGrant(ctx context.Context, id string, until time.Time) (Grant, error) {
	return c.grant(ctx, &aetherv1.AuthorityGrantOperation{
		Op:           aetherv1.AuthorityGrantOperation_OP_TYPE_RENEW,
		RenewRequest: &aetherv1.ACLRenewAuthorityGrantRequest{GrantId: id, ExpiresAt: unixOf(until)},
	})
}

// RevokeGrant ends a grant, and all that derive from it, on every gateway within
// two seconds.
func (c *Client) RevokeGrant(ctx context.Context, id string) (Grant, error) {
	return c.grant(ctx, &aetherv1.AuthorityGrantOperation{Op: aetherv1.AuthorityGrantOperation_OP_TYPE_REVOKE, GrantId: id})
}

// GrantsHeld lists the grants by which this principal may act for others,
// GrantsGiven those by which others may act for it: the newest first, those that
// hold.
func (c *Client) GrantsHeld(ctx context.Context) ([]Grant, error) {
	return c.listGrants(ctx, aetherv1.AuthorityGrantOperation_OP_TYPE_LIST_MY_GRANTS)
}

// GrantsGiven is described with GrantsHeld.
func (c *Client) GrantsGiven(ctx context.Context) ([]Grant, error) {
	return c.listGrants(ctx, aetherv1.AuthorityGrantOperation_OP_TYPE_LIST_GRANTS_ON_ME)
}

func (c *Client) listGrants(ctx context.Context, op aetherv1.AuthorityGrantOperation_OpType) (all []Grant, err error) {
	for {
		answer, err := c.askGrant(ctx, &aetherv1.AuthorityGrantOperation{Op: op, ListRequest: &aetherv1.AuthorityGrantListRequest{Offset: int32(len(all))}})
		if err != nil {
			return nil, err
		}
		for _, i := range answer.GetGrants() {
			all = append(all, newGrant(i))
		}
		if len(answer.GetGrants()) == 0 || len(all) >= int(answer.GetTotal()) {
			return all, nil
		}
	}
}

func (c *Client) grant(ctx context.Context, op *aetherv1.AuthorityGrantOperation) (Grant, error) {
	answer, err := c.askGrant(ctx, op)
	if err != nil {
		return Grant{}, err
	}
	return newGrant(answer.GetGrant()), nil
}

func (c *Client) askGrant(ctx context.Context, op *aetherv1.AuthorityGrantOperation) (*aetherv1.AuthorityGrantResponse, error) {
	frame, err := c.call(ctx, func(id string) *aetherv1.UpstreamMessage {
		op.RequestId = id
		return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_AuthorityGrantOp{AuthorityGrantOp: op}}
	}, nil)
	if err != nil {
		return nil, err
	}
	answer := frame.GetAuthorityGrant()
	if !answer.GetSuccess() {
		code := Code(answer.GetError())
		return nil, &Error{Code: code, Message: answer.GetMessage(), Retryable: code == CodeUnavailable || code == CodeRateLimited}
	}
	return answer, nil
}

func unixOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.Unix()
}

// WithGrant sends in the name of a grant's subject, which the receiver finds in
// [Message.OnBehalfOf].
func WithGrant(id string) SendOption {
	return func(s *aetherv1.SendMessage) {
		s.Authorization = onBehalf(id)
	}
}

func onBehalf(grant string) *aetherv1.AuthorizationContext {
	return &aetherv1.AuthorizationContext{AuthorityMode: "on_behalf_of", GrantId: grant}
}
