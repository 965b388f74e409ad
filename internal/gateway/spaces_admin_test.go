package gateway_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// An operator creates a workspace, lets users in, puts one out, whose session
// ends, and deletes it; names that are none change nothing.
func TestWorkspacesByOperators(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(o *gateway.Options) { o.AutoCreate = false })
	op := gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops"))
	ctx := within(t, patience)
	for _, name := range []string{"", "*", "a::b", "receiver0", "a b", "'; drop table members; --", "\x00"} {
		if _, err := op.CreateWorkspace(ctx, &adminv1.CreateWorkspaceRequest{Name: name}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("created %q: %v", name, err)
		}
		if _, err := op.DeleteWorkspace(ctx, &adminv1.DeleteWorkspaceRequest{Name: name}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("deleted %q: %v", name, err)
		}
		if _, err := op.RuleMember(ctx, &adminv1.RuleMemberRequest{Workspace: "w", User: name, Ruling: "in"}); status.Code(err) == codes.OK {
			t.Errorf("made %q a member", name)
		}
	}
	for _, name := range []string{"w", "w2", "../../etc"} {
		made, err := op.CreateWorkspace(ctx, &adminv1.CreateWorkspaceRequest{Name: name})
		if err != nil || !made.GetCreated() || made.GetWorkspace().GetCreatedBy() != "ops" {
			t.Fatalf("%s: %v, %v", name, made, err)
		}
	}
	if again, err := op.CreateWorkspace(ctx, &adminv1.CreateWorkspaceRequest{Name: "w"}); err != nil || again.GetCreated() {
		t.Errorf("once more: %v, %v", again, err)
	}
	var names []string
	for r := (&adminv1.ListWorkspacesRequest{PageSize: 1}); ; {
		page, err := op.ListWorkspaces(ctx, r)
		if err != nil || len(page.GetWorkspaces()) != 1 {
			t.Fatalf("%v, %v", page, err)
		}
		names = append(names, page.GetWorkspaces()[0].GetName())
		if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
			break
		}
	}
	if fmt.Sprint(names) != "[../../etc w w2]" {
		t.Errorf("listed %q", names)
	}
	for _, user := range []string{"u", "v"} {
		if _, err := op.RuleMember(ctx, &adminv1.RuleMemberRequest{Workspace: "w", User: user, Ruling: "in"}); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range []*adminv1.RuleMemberRequest{
		{Workspace: "w", User: "u", Ruling: "perhaps"},
		{Workspace: "w", User: "a::b", Ruling: "in"},
	} {
		if _, err := op.RuleMember(ctx, r); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%v: %v", r, err)
		}
	}
	if _, err := op.RuleMember(ctx, &adminv1.RuleMemberRequest{Workspace: "none", User: "u", Ruling: "in"}); status.Code(err) != codes.NotFound {
		t.Errorf("in a workspace that is none: %v", err)
	}
	if _, err := op.ListMembers(ctx, &adminv1.ListMembersRequest{Workspace: "none"}); status.Code(err) != codes.NotFound {
		t.Errorf("members of a workspace that is none: %v", err)
	}
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1"))
	if _, err := op.RuleMember(ctx, &adminv1.RuleMemberRequest{Workspace: "w", User: "u", Ruling: "out"}); err != nil {
		t.Fatal(err)
	}
	if err := user.End(); status.Code(err) != codes.PermissionDenied {
		t.Errorf("who was put out ended with %v", err)
	}
	members := map[string]string{}
	for r := (&adminv1.ListMembersRequest{Workspace: "w", PageSize: 1}); ; {
		page, err := op.ListMembers(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range page.GetMembers() {
			members[m.GetUser()] = fmt.Sprint(m.GetRuling(), " ", m.GetMember())
		}
		if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
			break
		}
	}
	if fmt.Sprint(members) != "map[u:out false v:in true]" {
		t.Errorf("members: %v", members)
	}
	if _, err := op.DeleteWorkspace(ctx, &adminv1.DeleteWorkspaceRequest{Name: "w"}); err != nil {
		t.Fatal(err)
	}
	if _, err := op.DeleteWorkspace(ctx, &adminv1.DeleteWorkspaceRequest{Name: "w"}); status.Code(err) != codes.NotFound {
		t.Errorf("deleted twice: %v", err)
	}
	if _, err := op.CreateWorkspace(ctx, &adminv1.CreateWorkspaceRequest{Name: "w"}); status.Code(err) != codes.FailedPrecondition {
		t.Errorf("created again at once: %v", err)
	}
}
