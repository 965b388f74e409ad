package session

import (
	"context"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/kv"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// snapshotTimeout bounds how long a session waits for its keys: it begins
// without them then.
const snapshotTimeout = 2 * time.Second

// keysOf is the principal as the keys' owner, as it is now.
func (s *Session) keysOf() *kv.Caller {
	return &kv.Caller{Principal: s.principal, Identity: s.identity, Session: s.id, Implementation: s.claim.Implementation}
}

// keys answers a request about keys. A refusal, too, keeps its place among the
// answers, for clients that tell them apart by their order.
func (s *Session) keys(op *aetherv1.KVOperation) {
	id, ok := s.ownRequestID(op.GetRequestId())
	if !ok {
		s.keysRefused("", "", wireerr.New(wireerr.InvalidArgument, "request_id has more than %d bytes", maxRequestText))
		return
	}
	if s.m.o.KV == nil {
		s.keysRefused(id, "", wireerr.New(wireerr.NotImplemented, "kv_op is not supported"))
		return
	}
	operation, refused := s.m.o.KV.Prepare(s.keysOf(), op)
	err := s.later(kv.Size(op), func(ctx context.Context) {
		if refused != nil {
			s.keysRefused(id, "", refused)
			return
		}
		answer, err := operation.Run(ctx)
		if err != nil {
			s.keysRefused(id, operation.Name(), err)
			return
		}
		answer.RequestId = id
		s.reply(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Kv{Kv: answer}})
	})
	if err != nil {
		s.keysRefused(id, "", err)
	}
}

// keysRefused says that a request about keys has failed: by the typed reply and
// by an error behind it.
func (s *Session) keysRefused(id, target string, err *wireerr.Error) {
	s.record("kv", target, err)
	s.reply(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Kv{Kv: &aetherv1.KVResponse{RequestId: id}}})
	if !s.box.Reply(router.ErrorFrame(id, kv.Failure(err))) {
		s.slow()
	}
}

// checkpoint answers a request about checkpoints.
func (s *Session) checkpoint(op *aetherv1.CheckpointOperation) {
	id, ok := s.ownRequestID(op.GetRequestId())
	answer := func(a *aetherv1.CheckpointResponse, err *wireerr.Error) {
		if err != nil {
			s.record("checkpoint", "", err)
			a = &aetherv1.CheckpointResponse{Error: err.Error()}
		}
		a.RequestId = id
		s.reply(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Checkpoint{Checkpoint: a}})
	}
	switch {
	case !ok:
		answer(nil, wireerr.New(wireerr.InvalidArgument, "request_id has more than %d bytes", maxRequestText))
		return
	case s.m.o.KV == nil:
		answer(nil, wireerr.New(wireerr.NotImplemented, "checkpoint_op is not supported"))
		return
	}
	operation, refused := s.m.o.KV.PrepareCheckpoint(s.keysOf(), op)
	err := s.later(kv.CheckpointSize(op), func(ctx context.Context) {
		if refused != nil {
			answer(nil, refused)
			return
		}
		answer(operation.Run(ctx))
	})
	if err != nil {
		answer(nil, err)
	}
}

// ownRequestID is the id that is given back; ok is false for one that is too
// long, which is not.
func (s *Session) ownRequestID(id string) (_ string, ok bool) {
	if len(id) > maxRequestText {
		return "", false
	}
	return id, true
}

// reply gives the client an answer to what it has asked.
func (s *Session) reply(m *aetherv1.DownstreamMessage) {
	if !s.box.Reply(frame(m)) {
		s.slow()
	}
}

// snapshot is what agents and tasks get before all else; nil for others.
func (s *Session) snapshot() *aetherv1.ConfigSnapshot {
	switch s.kind {
	case acl.Agent, acl.UniqueTask, acl.Task:
	default:
		return nil
	}
	if s.m.o.KV == nil {
		return &aetherv1.ConfigSnapshot{}
	}
	s.handling.Lock() // a new credential may be taking the place of the old one
	caller := s.keysOf()
	s.handling.Unlock()
	ctx, cancel := context.WithTimeout(s.st.Context(), snapshotTimeout)
	defer cancel()
	return s.m.o.KV.Snapshot(ctx, caller)
}
