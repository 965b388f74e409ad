package kv

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Rules are what operators have ruled about keys. Implementations are safe for
// concurrent use and answer from memory.
type Rules interface {
	// EffectOn says what the rules say of a principal, by its identity string,
	// doing something with the name of a key. What it does not know it denies.
	EffectOn(principal string, action acl.Action, name string) acl.Effect
}

// Spaces knows which workspaces there are, from memory.
type Spaces interface {
	// Check returns the era of a workspace, and whether it exists.
	Check(name string) (era uint32, exists bool)
}

// Options configure a [Service]. Store is required.
type Options struct {
	Store store.KV
	// Rules may deny kv:read and kv:write; nil denies nothing.
	Rules Rules
	// Members knows which users are in which workspaces; nil knows none.
	Members acl.Members
	// Grants say who may act for whom; nil: nobody does.
	Grants Grants
	// Spaces are asked about workspaces that services name; nil: all exist.
	Spaces Spaces
	// Keys and Bytes bound what each workspace has, and each implementation
	// across workspaces; 0 is no limit.
	Keys, Bytes int64
	// CheckpointTTL is how long a checkpoint is kept whose owner leaves that to
	// the gateway; 0 is without end.
	CheckpointTTL time.Duration
	Logger        *slog.Logger
	// ExpireEvery is how often keys are removed that have expired; default 30 s,
	// give or take a third.
	ExpireEvery time.Duration
}

// Service answers requests about keys. It is safe for concurrent use; what it
// does is as atomic on several gateways as on one.
type Service struct {
	o     Options
	stats Stats
	stop  context.CancelFunc
	wg    sync.WaitGroup
}

// New returns a service, which removes expired keys until it is closed.
func New(o Options) *Service {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.ExpireEvery <= 0 {
		o.ExpireEvery = 30 * time.Second
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Service{o: o, stop: stop}
	s.wg.Go(func() { s.expire(ctx) })
	return s
}

// Close ends the service and waits for it. Nil has nothing to end.
func (s *Service) Close() {
	if s == nil {
		return
	}
	s.stop()
	s.wg.Wait()
}

// expire removes what has expired, a bounded part at a time.
func (s *Service) expire(ctx context.Context) {
	failed := false
	for {
		timer := time.NewTimer(s.o.ExpireEvery*2/3 + rand.N(s.o.ExpireEvery*2/3+1))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		_, err := s.o.Store.ExpireKV(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			s.o.Logger.Warn("expired keys could not be removed", "error", err)
		}
		failed = err != nil
	}
}

// Failure is what a client is told of a failed request: KV_ERROR, with the code
// that says why among the details.
func Failure(err *wireerr.Error) *wireerr.Error {
	e := wireerr.New(wireerr.KVError, "%s", err.Message).With("code", string(err.Code))
	e.Retryable, e.RetryAfter = err.Retryable, err.RetryAfter
	for k, v := range err.Details {
		e = e.With(k, v)
	}
	return e
}

// failed says why a call of the store failed. repeatable is a request that has
// the same effect when it is made twice.
func (s *Service) failed(what string, err error, repeatable bool) *wireerr.Error {
	if e, ok := errors.AsType[*wireerr.Error](err); ok {
		return e
	}
	switch {
	case errors.Is(err, store.ErrText):
		return refusal(wireerr.InvalidArgument, "a text has a zero byte")
	case errors.Is(err, store.ErrFull):
		return refusal(wireerr.QuotaExceeded, "there are as many keys, or bytes of them, as there may be")
	}
	s.o.Logger.Debug("a request about keys failed", "what", what, "error", err)
	e := refusal(wireerr.Unavailable, "the keys cannot be reached at present").After(time.Second)
	if errors.Is(err, store.ErrUncertain) {
		e.Message = "the answer of the database was lost: it is not known whether the change took effect"
		e = e.With("outcome", "unknown")
		if e.Retryable = repeatable; !repeatable {
			e.RetryAfter = 0
		}
	}
	return e
}
