package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
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
		if x.Passed {
			x.Reason = fmt.Sprintf("%s has passed over it, at %s: it was not delivered", x.PassedBy, x.PassedAt.UTC().Format(time.RFC3339))
		}
		response.Messages = append(response.Messages, &adminv1.MessagePlace{
			MessageId: x.MessageID, Source: x.Source, Topic: x.Topic, State: stateName(x), Deliveries: x.Deliveries,
			Reason: x.Reason, TimestampMs: x.TimestampMS, Position: x.Position,
		})
	}
	return response, nil
}

func stateName(x where.Status) string {
	if x.Passed {
		return "skipped"
	}
	return strings.ToLower(strings.TrimPrefix(aetherv1.MessageStatus_State(x.State).String(), "STATE_"))
}
