package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/store"
)

// Spaces are the workspaces and who is in them: a [router.Router].
type Spaces interface {
	CreateWorkspace(ctx context.Context, name, by string) (w store.Workspace, created bool, err error)
	DeleteWorkspace(ctx context.Context, name string) error
	Workspaces(ctx context.Context) ([]store.Workspace, error)
	// WorkspaceExists reports whether one exists, or does as soon as it is named.
	WorkspaceExists(name string) bool
	RuleMember(ctx context.Context, workspace, user string, ruling store.Ruling) error
	MembersIn(ctx context.Context, workspace, after string, limit int) ([]store.Membership, error)
}

func workspaceOf(w store.Workspace) *adminv1.Workspace {
	return &adminv1.Workspace{Name: w.Name, CreatedAt: w.CreatedAt.Unix(), CreatedBy: w.CreatedBy}
}

// checkName refuses what cannot be a workspace, before anything is done.
func checkName(name string) error {
	if err := address.ValidWorkspace(name); err != nil {
		return status.Errorf(codes.InvalidArgument, "the workspace: %v", err)
	}
	return nil
}

// CreateWorkspace implements the service.
func (s *Service) CreateWorkspace(ctx context.Context, r *adminv1.CreateWorkspaceRequest) (*adminv1.CreateWorkspaceResponse, error) {
	if err := cmp.Or(checkName(r.GetName()), plain("the workspace", r.GetName())); err != nil {
		return nil, err
	}
	w, created, err := s.o.Spaces.CreateWorkspace(ctx, r.GetName(), operatorOf(ctx).Name)
	if err != nil {
		err = s.spaceError("create the workspace", err)
	}
	s.acted(ctx, audit.Rule, "workspace create", r.GetName(), err)
	if err != nil {
		return nil, err
	}
	return &adminv1.CreateWorkspaceResponse{Workspace: workspaceOf(w), Created: created}, nil
}

// ListWorkspaces implements the service.
func (s *Service) ListWorkspaces(ctx context.Context, r *adminv1.ListWorkspacesRequest) (*adminv1.ListWorkspacesResponse, error) {
	all, err := s.o.Spaces.Workspaces(ctx)
	if err != nil {
		return nil, s.spaceError("list the workspaces", err)
	}
	page, n := &adminv1.ListWorkspacesResponse{}, pageSize(r.GetPageSize())
	for _, w := range all {
		if w.Name <= r.GetPageToken() {
			continue
		}
		if len(page.Workspaces) == n {
			page.NextPageToken = page.Workspaces[n-1].GetName()
			break
		}
		page.Workspaces = append(page.Workspaces, workspaceOf(w))
	}
	return page, nil
}

// DeleteWorkspace implements the service.
func (s *Service) DeleteWorkspace(ctx context.Context, r *adminv1.DeleteWorkspaceRequest) (*adminv1.DeleteWorkspaceResponse, error) {
	if err := checkName(r.GetName()); err != nil {
		return nil, err
	}
	err := s.o.Spaces.DeleteWorkspace(ctx, r.GetName())
	if err != nil {
		err = s.spaceError("delete the workspace", err)
	}
	s.acted(ctx, audit.Rule, "workspace delete", r.GetName(), err)
	if err != nil {
		return nil, err
	}
	revoked, warnings := s.revokeKeysOf(ctx, r.GetName())
	return &adminv1.DeleteWorkspaceResponse{RevokedKeys: revoked, Warnings: warnings}, nil
}

// ListMembers implements the service.
func (s *Service) ListMembers(ctx context.Context, r *adminv1.ListMembersRequest) (*adminv1.ListMembersResponse, error) {
	if err := checkName(r.GetWorkspace()); err != nil {
		return nil, err
	}
	n := pageSize(r.GetPageSize())
	list, err := s.o.Spaces.MembersIn(ctx, r.GetWorkspace(), r.GetPageToken(), n+1)
	if err != nil {
		return nil, s.spaceError("list the members", err)
	}
	page := &adminv1.ListMembersResponse{}
	if len(list) > n {
		list = list[:n]
		page.NextPageToken = list[n-1].User
	}
	for _, m := range list {
		x := &adminv1.Member{Workspace: m.Workspace, User: m.User, Member: m.Member(s.o.Now()), Ruling: m.Ruling.String()}
		if !m.Until.IsZero() {
			x.Until = m.Until.Unix()
		}
		page.Members = append(page.Members, x)
	}
	return page, nil
}

var rulings = map[string]store.Ruling{
	store.RuledIn.String(): store.RuledIn, store.RuledOut.String(): store.RuledOut, store.Unruled.String(): store.Unruled,
}

// RuleMember implements the service.
func (s *Service) RuleMember(ctx context.Context, r *adminv1.RuleMemberRequest) (*adminv1.RuleMemberResponse, error) {
	if err := checkName(r.GetWorkspace()); err != nil {
		return nil, err
	}
	if err := address.ValidSegment(r.GetUser()); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "the user: %v", err)
	}
	ruling, ok := rulings[r.GetRuling()]
	if !ok {
		return nil, status.Errorf(codes.InvalidArgument, "ruling %.32q does not exist; it is in, out or none", r.GetRuling())
	}
	if ruling == store.RuledIn {
		if err := plain("the user", r.GetUser()); err != nil {
			return nil, err
		}
	}
	was := s.o.Members.InWorkspace(r.GetUser(), r.GetWorkspace())
	err := s.o.Spaces.RuleMember(ctx, r.GetWorkspace(), r.GetUser(), ruling)
	if err != nil {
		err = s.spaceError("record the ruling", err)
	}
	s.acted(ctx, audit.Rule, "member "+r.GetRuling(), fmt.Sprintf("%s in %s", r.GetUser(), r.GetWorkspace()), err)
	if err != nil {
		return nil, err
	}
	return &adminv1.RuleMemberResponse{WasMember: was}, nil
}

// spaceError is the status of a call about workspaces that failed.
func (s *Service) spaceError(what string, err error) error {
	var rest *store.RestError
	switch {
	case errors.As(err, &rest):
		st := status.Newf(codes.FailedPrecondition, "workspace %q was deleted a moment ago; its name can be used again in %s", rest.Name, rest.After.Round(time.Second))
		if with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(rest.After)}); err == nil {
			st = with
		}
		return st.Err()
	case errors.Is(err, router.ErrNoWorkspace):
		return status.Error(codes.NotFound, "there is no such workspace; `gateway workspace create` makes one")
	case errors.Is(err, router.ErrNoMember):
		return status.Error(codes.NotFound, "nothing is known of this user in the workspace: there is no ruling to take back")
	case errors.Is(err, router.ErrNotKept):
		return status.Error(codes.FailedPrecondition, "this gateway keeps no workspaces")
	}
	return s.storeAway(what, err)
}
