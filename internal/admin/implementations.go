package admin

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/orchestrator"
	"github.com/aether-gateway/gateway/internal/store"
)

// Implementations is the registry of what can be started: an
// [orchestrator.Registry].
type Implementations interface {
	Put(ctx context.Context, i store.Implementation) (store.Implementation, error)
	Remove(ctx context.Context, name, workspace string) (store.Implementation, error)
	List(ctx context.Context) ([]store.Implementation, error)
}

func implementationOf(i store.Implementation) *adminv1.Implementation {
	return &adminv1.Implementation{
		Implementation: i.Name, Workspace: i.Workspace, Profile: i.Profile, LaunchParams: orchestrator.Shown(i.Params), Overridable: i.Overridable,
		CreatedBy: i.CreatedBy, CreatedAt: i.CreatedAt.Unix(),
	}
}

// RegisterImplementation implements the service.
func (s *Service) RegisterImplementation(ctx context.Context, r *adminv1.RegisterImplementationRequest) (*adminv1.RegisterImplementationResponse, error) {
	x := r.GetImplementation()
	var i store.Implementation
	err := cmp.Or(
		s.noImplementations(), plain("the implementation", x.GetImplementation(), "the workspace", x.GetWorkspace(), "the profile", x.GetProfile()),
		plainAll("a launch parameter", slices.Collect(maps.Keys(x.GetLaunchParams()))), plainAll("a launch parameter", x.GetOverridable()),
	)
	if err == nil {
		i, err = s.o.Implementations.Put(ctx, store.Implementation{
			Name: x.GetImplementation(), Workspace: x.GetWorkspace(), Profile: x.GetProfile(), Params: x.GetLaunchParams(), Overridable: x.GetOverridable(),
			CreatedBy: operatorOf(ctx).Name,
		})
		err = s.implementationError("register the implementation", err)
	}
	s.acted(ctx, audit.Operate, "impl register", named(x.GetImplementation(), x.GetWorkspace()), err)
	if err != nil {
		return nil, err
	}
	return &adminv1.RegisterImplementationResponse{Implementation: implementationOf(i)}, nil
}

// ListImplementations implements the service.
func (s *Service) ListImplementations(ctx context.Context, r *adminv1.ListImplementationsRequest) (*adminv1.ListImplementationsResponse, error) {
	if err := s.noImplementations(); err != nil {
		return nil, err
	}
	all, err := s.o.Implementations.List(ctx)
	if err != nil {
		return nil, s.implementationError("list the implementations", err)
	}
	page := &adminv1.ListImplementationsResponse{}
	n := pageSize(r.GetPageSize())
	for _, i := range all {
		key := i.Name + pageSeparator + i.Workspace
		if r.GetPageToken() != "" && key <= r.GetPageToken() {
			continue
		}
		if len(page.Implementations) == n {
			last := page.GetImplementations()[n-1]
			page.NextPageToken = last.GetImplementation() + pageSeparator + last.GetWorkspace()
			break
		}
		page.Implementations = append(page.Implementations, implementationOf(i))
	}
	return page, nil
}

// pageSeparator is below everything that a name can have, so that keys are in
// the order of the list.
const pageSeparator = " "

// RemoveImplementation implements the service.
func (s *Service) RemoveImplementation(ctx context.Context, r *adminv1.RemoveImplementationRequest) (*adminv1.RemoveImplementationResponse, error) {
	var i store.Implementation
	err := s.noImplementations()
	if err == nil {
		i, err = s.o.Implementations.Remove(ctx, r.GetImplementation(), r.GetWorkspace())
		if errors.Is(err, store.ErrNotFound) {
			err = status.Errorf(codes.NotFound, "there is no entry for %s; `gateway impl list` shows what there is", named(r.GetImplementation(), r.GetWorkspace()))
		} else {
			err = s.implementationError("remove the implementation", err)
		}
	}
	s.acted(ctx, audit.Operate, "impl remove", named(r.GetImplementation(), r.GetWorkspace()), err)
	if err != nil {
		return nil, err
	}
	return &adminv1.RemoveImplementationResponse{Implementation: implementationOf(i)}, nil
}

func (s *Service) noImplementations() error {
	if s.o.Implementations == nil {
		return status.Error(codes.FailedPrecondition, "this gateway starts nothing")
	}
	return nil
}

func named(implementation, workspace string) string {
	if workspace == "" {
		return implementation
	}
	return implementation + " in workspace " + workspace
}

// implementationError is the status of a call about the registry; of nil it is
// nil.
func (s *Service) implementationError(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, orchestrator.ErrEntry):
		return status.Error(codes.InvalidArgument, strings.TrimPrefix(err.Error(), orchestrator.ErrEntry.Error()+": "))
	case errors.Is(err, store.ErrText):
		return status.Error(codes.InvalidArgument, "a text is not valid UTF-8 or contains a zero byte")
	case errors.Is(err, store.ErrFull):
		return status.Errorf(codes.ResourceExhausted, "there are %d implementations already; remove one first", store.MaxImplementations)
	}
	return s.storeAway(what, err)
}
