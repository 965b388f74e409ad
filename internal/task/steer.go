package task

import (
	"context"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Find shows a task to an operator.
func (s *Service) Find(ctx context.Context, id string) (*aetherv1.TaskInfo, *wireerr.Error) {
	if id == "" || len(id) > maxID {
		return nil, noTask()
	}
	t, ok, err := s.o.Store.Task(ctx, id)
	switch {
	case err != nil:
		return nil, s.away(err)
	case !ok:
		return nil, noTask()
	}
	return s.Info(&t), nil
}

// Steer moves a task for an operator, who may move all.
func (s *Service) Steer(ctx context.Context, id string, e Event, reason string) (*aetherv1.TaskInfo, *wireerr.Error) {
	switch {
	case id == "" || len(id) > maxID:
		return nil, noTask()
	case len(reason) > maxReason:
		return nil, wireerr.New(wireerr.InvalidArgument, "reason has %d bytes, %d are allowed", len(reason), maxReason)
	}
	t, err := s.change(ctx, id, func(t *store.Task) error {
		if e == Retry {
			return again(t, reason, s.o.Now())
		}
		return Move(t, e, reason, s.o.Now())
	})
	if err != nil {
		return nil, err
	}
	return s.Info(t), nil
}
