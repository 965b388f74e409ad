package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// deadTimeout bounds a call about dead letters, which may have to read much of
// their log.
const deadTimeout = 30 * time.Second

// ListDeadLetters implements the service.
func (s *Service) ListDeadLetters(ctx context.Context, r *adminv1.ListDeadLettersRequest) (*adminv1.ListDeadLettersResponse, error) {
	from := uint64(0)
	if token := r.GetPageToken(); token != "" {
		var err error
		if from, err = strconv.ParseUint(token, 10, 64); err != nil {
			return nil, status.Error(codes.InvalidArgument, "the page_token is not one of this service")
		}
	}
	f := router.DeadLetterFilter{Prefix: r.GetPrefix(), Reason: r.GetReason()}
	switch f.Reason {
	case "", router.DeadRejected, router.DeadUnfinished, router.DeadUnclaimed:
	default:
		return nil, status.Errorf(codes.InvalidArgument, "reason %.32q does not exist; it is %s, %s or %s", f.Reason, router.DeadRejected, router.DeadUnfinished, router.DeadUnclaimed)
	}
	within, cancel := deadTime(ctx)
	defer cancel()
	list, next, err := s.o.Router.DeadLetters(within, from, pageSize(r.GetPageSize()), f)
	if err != nil {
		err = s.deadError("read the dead letters", err)
	}
	s.acted(ctx, audit.Operate, "dead-letters list", r.GetPrefix(), err)
	if err != nil {
		return nil, err
	}
	page := &adminv1.ListDeadLettersResponse{}
	for i := range list {
		d := &list[i]
		page.DeadLetters = append(page.DeadLetters, &adminv1.DeadLetter{
			Position: d.Position, Reason: d.Reason, Attempts: int32(min(d.Attempts, math.MaxInt32)), GivenUpAtMs: d.At.UnixMilli(),
			Message: storedEnvelope(d.Message, d.Original),
		})
	}
	if next > 0 {
		page.NextPageToken = strconv.FormatUint(next, 10)
	}
	return page, nil
}

// deadTime is the time for a call, of which some stays to answer what was found
// by then.
func deadTime(ctx context.Context) (context.Context, context.CancelFunc) {
	wait := deadTimeout
	if end, ok := ctx.Deadline(); ok {
		wait = min(wait, time.Until(end)*3/4)
	}
	return context.WithTimeout(ctx, wait)
}

// ReplayDeadLetter implements the service.
func (s *Service) ReplayDeadLetter(ctx context.Context, r *adminv1.ReplayDeadLetterRequest) (*adminv1.ReplayDeadLetterResponse, error) {
	within, cancel := deadTime(ctx)
	defer cancel()
	id, err := s.o.Router.ReplayDeadLetter(within, r.GetPosition())
	if err != nil {
		err = s.deadError("replay the dead letter", err)
	}
	s.acted(ctx, audit.Operate, "dead-letters replay", strconv.FormatUint(r.GetPosition(), 10), err)
	if err != nil {
		return nil, err
	}
	return &adminv1.ReplayDeadLetterResponse{MessageId: id}, nil
}

// PurgeDeadLetters implements the service.
func (s *Service) PurgeDeadLetters(ctx context.Context, r *adminv1.PurgeDeadLettersRequest) (*adminv1.PurgeDeadLettersResponse, error) {
	from, to, one := uint64(0), uint64(0), false
	target := ""
	switch x := r.GetExtent().(type) {
	case *adminv1.PurgeDeadLettersRequest_Position:
		from, to, one, target = x.Position, x.Position, true, strconv.FormatUint(x.Position, 10)
	case *adminv1.PurgeDeadLettersRequest_ToPosition:
		to, target = x.ToPosition, fmt.Sprintf("up to %d", x.ToPosition)
	case *adminv1.PurgeDeadLettersRequest_All:
		if !x.All {
			return nil, status.Error(codes.InvalidArgument, "all must be true, or not given")
		}
		to, target = math.MaxUint64, "all"
	default:
		return nil, status.Error(codes.InvalidArgument, "say how much: position, to_position or all")
	}
	within, cancel := deadTime(ctx)
	defer cancel()
	n, err := s.o.Router.PurgeDeadLetters(within, from, to)
	if err == nil && n == 0 && one {
		err = router.ErrNoDeadLetter
	}
	if err != nil {
		err = s.deadError("purge the dead letters", err)
	}
	s.acted(ctx, audit.Operate, "dead-letters purge", target, err)
	if err != nil {
		return nil, err
	}
	return &adminv1.PurgeDeadLettersResponse{Purged: int64(n)}, nil
}

// deadError is the status of a call about dead letters that failed.
func (s *Service) deadError(what string, err error) error {
	var refused *wireerr.Error
	switch {
	case errors.Is(err, router.ErrNoDeadLetters):
		return status.Error(codes.FailedPrecondition, "this gateway keeps no dead letters: its log was made without")
	case errors.Is(err, router.ErrReplayed):
		return status.Error(codes.AlreadyExists, "this dead letter was replayed already; nothing was sent")
	case errors.Is(err, router.ErrNoDeadLetter):
		return status.Error(codes.NotFound, "there is no such dead letter; `gateway dead-letters list` shows them")
	case errors.As(err, &refused) && !refused.Retryable && refused.Code != wireerr.PublishFailed:
		return status.Errorf(codes.FailedPrecondition, "%s (%s)", refused.Message, refused.Code)
	}
	s.o.Logger.Warn("an operator's call failed in the log", "what", what, "error", err)
	return status.Errorf(codes.Unavailable, "the log could not %s; try again in a moment", what)
}
