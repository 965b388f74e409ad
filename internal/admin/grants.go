package admin

import (
	"context"
	"errors"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/grants"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Grants are who may act for whom: a [grants.Service].
type Grants interface {
	List(ctx context.Context, f store.GrantFilter, offset, limit int) ([]store.Grant, int, error)
	Revoke(ctx context.Context, id, by, reason string) (g store.Grant, n int, err error)
	Issue(ctx context.Context, by string, subject *aetherv1.PrincipalRef, r *aetherv1.AuthorityGrantExchangeRequest) (store.Grant, *wireerr.Error)
}

func grantMessage(g *store.Grant) *adminv1.Grant {
	i := grants.Info(g)
	m := &adminv1.Grant{
		GrantId: g.ID, RootGrantId: g.RootID, ParentGrantId: g.ParentID, SubjectType: g.SubjectType, SubjectId: g.SubjectID,
		DelegateType: g.DelegateType, DelegateId: g.DelegateID, IssuedBy: g.IssuedBy, AudienceType: g.AudienceType, AudienceId: g.AudienceID,
		ValidWhileAudienceActive: i.GetValidWhileAudienceActive(), WorkspaceScope: i.GetWorkspaceScope(), OperationScope: i.GetOperationScope(),
		MaxAccessLevel: i.GetMaxAccessLevel(), RemainingHops: i.GetRemainingHops(), CreatedAt: unix(g.CreatedAt), ExpiresAt: unix(g.ExpiresAt),
		RenewableUntil: unix(g.RenewableUntil), RenewedAt: unix(g.RenewedAt), RevokedAt: unix(g.RevokedAt), RevokedBy: g.RevokedBy,
		RevokeReason: g.RevokeReason, Reason: i.GetReason(),
	}
	for _, r := range i.GetResourceScope() {
		m.Addresses = append(m.Addresses, r.GetPatterns()...)
	}
	return m
}

func (s *Service) grants() (Grants, error) {
	if s.o.Grants == nil {
		return nil, status.Error(codes.FailedPrecondition, "this gateway keeps no grants")
	}
	return s.o.Grants, nil
}

// ListGrants implements the service.
func (s *Service) ListGrants(ctx context.Context, r *adminv1.ListGrantsRequest) (*adminv1.ListGrantsResponse, error) {
	g, err := s.grants()
	if err != nil {
		return nil, err
	}
	// The token is how many were listed and when the listing began: what is made
	// meanwhile comes before, and may show one twice.
	from := 0
	if token := r.GetPageToken(); token != "" {
		if from, err = strconv.Atoi(token); err != nil || from < 0 {
			return nil, status.Error(codes.InvalidArgument, "the page_token is not one of this service")
		}
	}
	f := store.GrantFilter{SubjectID: r.GetSubjectId(), Ended: r.GetIncludeEnded()}
	if r.GetDelegateId() != "" {
		f.Delegates = []string{r.GetDelegateId()}
	}
	list, total, err := g.List(ctx, f, from, pageSize(r.GetPageSize()))
	if err != nil {
		return nil, s.grantError("list the grants", err)
	}
	page := &adminv1.ListGrantsResponse{}
	for i := range list {
		page.Grants = append(page.Grants, grantMessage(&list[i]))
	}
	if from+len(list) < total && len(list) > 0 {
		page.NextPageToken = strconv.Itoa(from + len(list))
	}
	return page, nil
}

// RevokeGrant implements the service.
func (s *Service) RevokeGrant(ctx context.Context, r *adminv1.RevokeGrantRequest) (*adminv1.RevokeGrantResponse, error) {
	keeper, err := s.grants()
	if err != nil {
		return nil, err
	}
	var g store.Grant
	var n int
	if len(r.GetReason()) > maxReason {
		err = status.Errorf(codes.InvalidArgument, "the reason has %d bytes, %d are allowed", len(r.GetReason()), maxReason)
	} else if g, n, err = keeper.Revoke(ctx, r.GetGrantId(), operatorOf(ctx).Name, r.GetReason()); err != nil {
		err = s.grantError("revoke the grant", err)
	}
	s.acted(ctx, audit.Grant, "grant revoke", r.GetGrantId(), err)
	if err != nil {
		return nil, err
	}
	return &adminv1.RevokeGrantResponse{Grant: grantMessage(&g), Revoked: int32(n)}, nil
}

// IssueGrant implements the service.
func (s *Service) IssueGrant(ctx context.Context, r *adminv1.IssueGrantRequest) (*adminv1.IssueGrantResponse, error) {
	keeper, err := s.grants()
	if err != nil {
		return nil, err
	}
	x := r.GetGrant()
	ask := &aetherv1.AuthorityGrantExchangeRequest{
		WorkspaceScope: x.GetWorkspaceScope(), OperationScope: x.GetOperationScope(), MaxAccessLevel: x.GetMaxAccessLevel(),
		AudienceType: x.GetAudienceType(), AudienceId: x.GetAudienceId(), ValidWhileAudienceActive: x.GetValidWhileAudienceActive(),
		ExpiresAt: x.GetExpiresAt(), RenewableUntil: x.GetRenewableUntil(), MayDelegate: x.GetRemainingHops() > 0, RemainingHops: x.GetRemainingHops(), Reason: x.GetReason(),
	}
	if ask.AudienceType == "" {
		ask.AudienceType, ask.AudienceId = x.GetDelegateType(), x.GetDelegateId()
	}
	if len(x.GetAddresses()) > 0 {
		ask.ResourceScope = []*aetherv1.ACLAuthorityGrantResourceScopeEntry{{ResourceType: "address", Patterns: x.GetAddresses()}}
	}
	g, refused := keeper.Issue(ctx, operatorOf(ctx).Name, &aetherv1.PrincipalRef{PrincipalType: x.GetSubjectType(), PrincipalId: x.GetSubjectId()}, ask)
	if refused != nil {
		err = refusedGrant(refused)
	}
	s.acted(ctx, audit.Grant, "grant issue", x.GetSubjectId()+" to "+ask.GetAudienceId(), err)
	if err != nil {
		return nil, err
	}
	return &adminv1.IssueGrantResponse{Grant: grantMessage(&g)}, nil
}

// refusedGrant is the status of a grant that was not made.
func refusedGrant(e *wireerr.Error) error {
	code := e.GRPC()
	if e.Code == wireerr.GrantInvalid {
		code = codes.FailedPrecondition // the operator may; it is the subject that may not
	}
	return status.Error(code, e.Message)
}

// grantError is the status of a call about grants that failed.
func (s *Service) grantError(what string, err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return status.Error(codes.NotFound, "there is no such grant; `gateway grant list --ended` shows them")
	case errors.Is(err, store.ErrText):
		return status.Error(codes.InvalidArgument, "a text is not valid UTF-8 or contains a zero byte")
	}
	return s.storeAway(what, err)
}
