package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/policy"
	"github.com/aether-gateway/gateway/internal/router"
)

// Where it is known from in which workspace somebody is.
const (
	fromIdentity = "identity"
	fromRequest  = "request"
	fromSession  = "session"
	fromAddress  = "address"
)

// ExplainSend implements the service.
func (s *Service) ExplainSend(ctx context.Context, r *adminv1.ExplainSendRequest) (*adminv1.ExplainSendResponse, error) {
	p, err := policy.PrincipalOf(r.GetIdentity(), r.GetWorkspaces()...)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	a, err := address.Parse(r.GetAddress())
	if err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the address: %v", err)
	}
	set := s.o.Rules.Set()
	if set == nil {
		return nil, status.Error(codes.Unavailable, "the rules are not known yet; try again in a moment")
	}
	response := &adminv1.ExplainSendResponse{}
	switch {
	case p.Kind != acl.User && p.Workspace != "":
		response.WorkspaceFrom = fromIdentity
	case p.Workspace != "":
		response.WorkspaceFrom = fromRequest
	case p.Kind == acl.User:
		response.WorkspaceFrom = s.place(ctx, p, a)
	}
	response.Workspace = p.Workspace
	e := set.Explain(p, a, s.o.Members)
	response.Allowed, response.Reason = e.Decision.Allowed, reason(p, e.Decision, e.Text)
	response.AllowedWithoutRules, response.ReasonWithoutRules = e.Before.Allowed, reason(p, e.Before, e.BeforeText)
	for _, rule := range e.Rules {
		response.Rules = append(response.Rules, ruleOf(rule.Rule))
	}
	if p.Kind == acl.User && p.Workspace != "" && s.o.Members.Barred(p.Address.UserID(), p.Workspace) {
		out := fmt.Sprintf("user %q is no member of workspace %q: an operator keeps them out", p.Address.UserID(), p.Workspace)
		response.Allowed, response.Reason = false, out
		response.AllowedWithoutRules, response.ReasonWithoutRules = false, out
	}
	if ws := cmp.Or(a.Workspace(), p.Workspace); ws != "" && !s.o.Spaces.WorkspaceExists(ws) {
		none := router.NoWorkspace(ws)
		response.Allowed, response.Reason = false, none
		response.AllowedWithoutRules, response.ReasonWithoutRules = false, none
	}
	return response, nil
}

// reason is the text of a decision for an operator, who can say what was not said.
func reason(p *acl.Principal, d acl.Decision, text string) string {
	switch {
	case d.Reason != acl.ReasonNoWorkspace:
		return text
	case p.Kind == acl.User:
		return fmt.Sprintf("it depends on the workspace; %s is not connected, so say with --workspace where it would be", p.Name())
	}
	return "it depends on the workspaces that the credential covers; say which with --workspace"
}

// place finds out in which workspace a user is of whom nothing is said: where
// its session is, else where what it would send to is. It returns how that is
// known, "" if it is not.
func (s *Service) place(ctx context.Context, p *acl.Principal, to address.Address) string {
	identity := p.Address.String()
	ws, from := to.Workspace(), fromAddress
	// A gateway that does not answer is as one without the session: this is an
	// assumption, and the answer says which.
	if list, err := s.ListSessions(ctx, &adminv1.ListSessionsRequest{IdentityPrefix: identity, Kind: auth.KindUser}); err == nil {
		if i := slices.IndexFunc(list.GetSessions(), func(x *adminv1.Session) bool { return x.GetIdentity() == identity && x.GetWorkspace() != "" }); i >= 0 {
			ws, from = list.GetSessions()[i].GetWorkspace(), fromSession
		}
	}
	if ws == "" {
		return ""
	}
	p.Workspace = ws
	if p.Workspaces.IsEmpty() {
		p.Workspaces = acl.Workspaces(ws)
	}
	return from
}
