package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/where"
)

// FindMessage implements the service.
func (s *Service) FindMessage(ctx context.Context, r *adminv1.FindMessageRequest) (*adminv1.FindMessageResponse, error) {
	if id := r.GetMessageId(); id == "" || len(id) > where.MaxMessageID {
		return nil, status.Errorf(codes.InvalidArgument, "the message id must have 1 to %d bytes", where.MaxMessageID)
	}
	var since time.Time
	if ms := r.GetSinceMs(); ms > 0 {
		since = time.UnixMilli(ms)
	}
	list, whole, err := s.o.Finder.Stored(ctx, r.GetMessageId(), since)
	if err != nil {
		return nil, s.storeAway("read the log for the message", err)
	}
	response := &adminv1.FindMessageResponse{Incomplete: !whole}
	for _, x := range list {
		givenUp, why := s.givenUp(ctx, &x)
		if x.Passed {
			x.Reason = fmt.Sprintf("%s has passed over it, at %s: it was not delivered", x.PassedBy, x.PassedAt.UTC().Format(time.RFC3339))
		}
		state := stateName(x)
		if givenUp {
			state, x.Reason = "given_up", why
		} else if why != "" && x.Reason == "" {
			x.Reason = why
		}
		response.Messages = append(response.Messages, &adminv1.MessagePlace{
			MessageId: x.MessageID, Source: x.Source, Topic: x.Topic, State: state, Deliveries: x.Deliveries,
			Reason: x.Reason, TimestampMs: x.TimestampMS, Position: x.Position,
		})
	}
	return response, nil
}

// deadPatience bounds how long is looked for a message among the dead letters.
const deadPatience = 2 * time.Second

// givenUp reports whether a message that is done is a dead letter, and which; if
// that is not known, why says so.
func (s *Service) givenUp(ctx context.Context, x *where.Status) (yes bool, why string) {
	if x.State != router.StateAcked {
		return false, ""
	}
	within, cancel := context.WithTimeout(ctx, deadPatience)
	defer cancel()
	list, next, err := s.o.Router.DeadLetters(within, 0, 1, router.DeadLetterFilter{Prefix: x.Topic, Original: &x.Position})
	switch {
	case errors.Is(err, router.ErrNoDeadLetters):
		return false, ""
	case err == nil && len(list) > 0 && list[0].Message.GetTopic() == x.Topic:
		d := &list[0]
		return true, fmt.Sprintf("given up after %d deliveries (%s): it is the dead letter %d", d.Attempts, d.Reason, d.Position)
	case err != nil || next > 0:
		return false, "it is done: acknowledged, or given up; not all dead letters could be read in time"
	}
	return false, ""
}

func stateName(x where.Status) string {
	if x.Passed {
		return "skipped"
	}
	return strings.ToLower(strings.TrimPrefix(aetherv1.MessageStatus_State(x.State).String(), "STATE_"))
}
