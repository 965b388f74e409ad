package admin

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/store"
)

// mailAddress parses the address of somebody's mail.
func mailAddress(text string) (address.Address, error) {
	a, err := address.Parse(text)
	if err != nil {
		return a, status.Errorf(codes.InvalidArgument, "the address: %v", err)
	}
	if a.Prefix().Mode() != address.Exclusive {
		return a, status.Errorf(codes.InvalidArgument, "%s keeps no mail: only addresses with one reader do (ag, tu, ta, us, sv, br, event)", a)
	}
	return a, nil
}

// PeekMail implements the service.
func (s *Service) PeekMail(ctx context.Context, r *adminv1.PeekMailRequest) (*adminv1.PeekMailResponse, error) {
	a, err := mailAddress(r.GetAddress())
	if err != nil {
		return nil, err
	}
	behind := int64(-1)
	if token := r.GetPageToken(); token != "" {
		if behind, err = strconv.ParseInt(token, 10, 64); err != nil || behind < 0 {
			return nil, status.Error(codes.InvalidArgument, "the page_token is not one of this service")
		}
	}
	list, more, whole, err := s.o.Router.Peek(ctx, a, behind, pageSize(r.GetPageSize()))
	if err != nil {
		err = s.mailAway("read the mail", err)
	}
	s.acted(ctx, audit.Operate, "mail peek", a.String(), err)
	if err != nil {
		return nil, err
	}
	page := &adminv1.PeekMailResponse{Incomplete: !whole}
	for _, u := range list {
		if m, err := storedMessage(u.Envelope, u.Position); err == nil {
			page.Messages = append(page.Messages, m)
		}
	}
	if n := len(list); more && n > 0 {
		page.NextPageToken = strconv.FormatUint(list[n-1].Position, 10)
	}
	return page, nil
}

// SkipMail implements the service.
func (s *Service) SkipMail(ctx context.Context, r *adminv1.SkipMailRequest) (*adminv1.SkipMailResponse, error) {
	a, err := mailAddress(r.GetAddress())
	if err != nil {
		return nil, err
	}
	action := audit.MailSkip
	if r.GetAll() {
		action = audit.MailPurge
	}
	response, detail, err := s.skip(ctx, a, r)
	s.actedOn(ctx, audit.Operate, action, a.String(), detail, err)
	return response, err
}

func (s *Service) skip(ctx context.Context, a address.Address, r *adminv1.SkipMailRequest) (response *adminv1.SkipMailResponse, detail string, err error) {
	response = &adminv1.SkipMailResponse{}
	switch x := r.GetExtent().(type) {
	case *adminv1.SkipMailRequest_Count:
		if x.Count < 1 || x.Count > maxPage {
			return nil, "", status.Errorf(codes.InvalidArgument, "the count must be in 1..%d", maxPage)
		}
	case *adminv1.SkipMailRequest_All:
		if !x.All {
			return nil, "", status.Error(codes.InvalidArgument, "all must be true, or not given")
		}
	case *adminv1.SkipMailRequest_ToPosition:
		response.Position = x.ToPosition
	default:
		return nil, "", status.Error(codes.InvalidArgument, "say how much: count, to_position or all")
	}
	err = s.holding(ctx, a, func(lease presence.Lease) error {
		var to *uint64
		if !r.GetAll() {
			to = &response.Position
		}
		if count := r.GetCount(); count > 0 {
			list, _, whole, err := s.o.Router.Peek(ctx, a, -1, int(count))
			if err != nil {
				return err
			}
			if len(list) == 0 {
				if !whole {
					return status.Error(codes.DeadlineExceeded, "the log could not be read as far as the first message")
				}
				return status.Errorf(codes.NotFound, "no mail waits for %s", a)
			}
			response.Skipped, response.Position = int32(len(list)), list[len(list)-1].Position
		}
		first, last, err := s.o.Router.PassOver(ctx, a, lease, to)
		if err == nil && first <= last {
			detail = audit.PassedOver(first, last)
		}
		return err
	})
	if err != nil {
		return nil, "", s.mailAway("move the position", err)
	}
	return response, detail, nil
}

// ReplayMail implements the service.
func (s *Service) ReplayMail(ctx context.Context, r *adminv1.ReplayMailRequest) (*adminv1.ReplayMailResponse, error) {
	a, err := mailAddress(r.GetAddress())
	if err != nil {
		return nil, err
	}
	response, err := s.replay(ctx, a, r)
	detail := ""
	if err == nil {
		detail = audit.ReplayedFrom(response.GetPosition())
	}
	s.actedOn(ctx, audit.Operate, audit.MailReplay, a.String(), detail, err)
	return response, err
}

func (s *Service) replay(ctx context.Context, a address.Address, r *adminv1.ReplayMailRequest) (*adminv1.ReplayMailResponse, error) {
	response := &adminv1.ReplayMailResponse{}
	switch x := r.GetStart().(type) {
	case *adminv1.ReplayMailRequest_FromPosition:
		response.Position = x.FromPosition
	case *adminv1.ReplayMailRequest_SinceMs:
		position, ok, err := s.o.Router.PositionSince(ctx, a, time.UnixMilli(x.SinceMs))
		if err != nil {
			return nil, s.mailAway("read the log", err)
		}
		if !ok {
			return nil, status.Errorf(codes.NotFound, "the log has no message to %s that is as new as that", a)
		}
		response.Position = position
	default:
		return nil, status.Error(codes.InvalidArgument, "say from where: from_position or since_ms")
	}
	err := s.holding(ctx, a, func(lease presence.Lease) error { return s.o.Router.Replay(ctx, a, lease, response.Position) })
	if err != nil {
		return nil, s.mailAway("move the position", err)
	}
	return response, nil
}

const (
	// holdTimeout bounds how long an operator holds somebody's address.
	holdTimeout    = 20 * time.Second
	releaseTimeout = 2 * time.Second
)

// holding calls f with the lease on an address, so that nobody reads it
// meanwhile and nothing of an earlier reader counts any more.
func (s *Service) holding(ctx context.Context, a address.Address, f func(presence.Lease) error) error {
	ctx, cancel := context.WithTimeout(ctx, holdTimeout)
	defer cancel()
	lease, err := s.o.Leases.Acquire(ctx, uuid.NewString(), a.String())
	switch {
	case errors.Is(err, presence.ErrHeld):
		return status.Errorf(codes.FailedPrecondition, "%s is connected: its mail can be moved only while it is not; end its session first (`gateway sessions kick %s`)", a, a)
	case err != nil:
		return status.Error(codes.Unavailable, "the lease on the address cannot be taken at present; try again in a moment")
	}
	defer func() {
		releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		if err := s.o.Leases.Release(releasing, lease); err != nil {
			s.o.Logger.Warn("a lease of an operator could not be released", "address", a.String(), "error", err)
		}
	}()
	return f(lease)
}

// mailAway is the status of a call that did not get what it needed, unless err
// has one already.
func (s *Service) mailAway(what string, err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch {
	case errors.Is(err, router.ErrNoMail):
		return status.Error(codes.InvalidArgument, "the address keeps no mail")
	case errors.Is(err, router.ErrBeyond):
		return status.Error(codes.InvalidArgument, "the log does not reach as far as this position; nothing was changed")
	case errors.Is(err, store.ErrFenced):
		return status.Error(codes.Aborted, "a session has begun meanwhile; nothing was changed")
	}
	return s.storeAway(what, err)
}
