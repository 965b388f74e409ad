package gateway_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// An operator adds rules, sees why a send is refused, and takes them back; a
// rule that makes no sense is refused, one that is odd is warned of.
func TestRulesByOperators(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	op := gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops"))
	ctx := within(t, patience)
	add := func(r *adminv1.Rule) (*adminv1.AddRuleResponse, error) {
		return op.AddRule(ctx, &adminv1.AddRuleRequest{Rule: r})
	}
	for _, r := range []*adminv1.Rule{
		nil,
		{},
		{Effect: "perhaps", Principal: "us::*::*", Action: "send", Address: "ag::w::*::*", Grammar: "strict"},
		{Effect: "deny", Principal: "us::*::*", Action: "sing", Address: "ag::w::*::*", Grammar: "strict"},
		{Effect: "deny", Principal: "us::*::*", Action: "send", Address: "", Grammar: "strict"},
		{Effect: "deny", Principal: "us::*::*", Action: "send", Address: "ag::w::*::*", Grammar: "sql"},
	} {
		if _, err := add(r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", r, err)
		}
	}
	var ids []int64
	for i := range 5 {
		added, err := add(&adminv1.Rule{Effect: "deny", Principal: "us::u::*", Action: "send", Address: fmt.Sprintf("ag::w::echo::%d", i+1), Grammar: "strict"})
		if err != nil || !added.GetCreated() || added.GetRule().GetCreatedBy() != "ops" {
			t.Fatalf("%v, %v", added, err)
		}
		ids = append(ids, added.GetRule().GetId())
	}
	again, err := add(&adminv1.Rule{Effect: "deny", Principal: "us::u::*", Action: "send", Address: echo, Grammar: "strict"})
	if err != nil || again.GetCreated() || again.GetRule().GetId() != ids[0] {
		t.Errorf("the same once more: %v, %v", again, err)
	}
	odd, err := add(&adminv1.Rule{Effect: "allow", Principal: "us::u::*", Action: "send", Address: echo, Grammar: "strict"})
	if err != nil || len(odd.GetWarnings()) == 0 {
		t.Errorf("one that contradicts: %v, %v", odd, err)
	}
	var listed []int64
	for r := (&adminv1.ListRulesRequest{PageSize: 2}); ; {
		page, err := op.ListRules(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range page.GetRules() {
			listed = append(listed, x.GetId())
		}
		if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
			break
		}
	}
	if len(listed) != 6 {
		t.Errorf("listed %v", listed)
	}
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1"))
	user.Send(send(echo, "1", "1"))
	if e := user.Error(); e.GetCode() != "ERR_PERMISSION_DENIED" {
		t.Errorf("got %v", e)
	}
	why, err := op.ExplainSend(ctx, &adminv1.ExplainSendRequest{Identity: "us::u::1", Address: echo, Workspaces: []string{"w"}})
	if err != nil || why.GetAllowed() || why.GetReason() == "" || !why.GetAllowedWithoutRules() || len(why.GetRules()) != 2 {
		t.Errorf("explained: %v, %v", why, err)
	}
	for _, x := range []*adminv1.ExplainSendRequest{
		{}, {Identity: "nobody", Address: echo}, {Identity: "us::u::1", Address: "nowhere"}, {Identity: "us::u::1", Address: echo, Workspaces: []string{"*#"}},
	} {
		if _, err := op.ExplainSend(ctx, x); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", x, err)
		}
	}
	if _, err := op.RemoveRule(ctx, &adminv1.RemoveRuleRequest{Id: ids[0]}); err != nil {
		t.Error(err)
	}
	if _, err := op.RemoveRule(ctx, &adminv1.RemoveRuleRequest{Id: ids[0]}); status.Code(err) != codes.NotFound {
		t.Errorf("removed twice: %v", err)
	}
	user.Send(send(echo, "2", "2"))
	user.Receipt()
}
