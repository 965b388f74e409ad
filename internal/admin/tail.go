package admin

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/subject"
)

// recheckEvery is how often a stream looks whether its operator's credential
// still counts.
const recheckEvery = time.Second

// maxSubjects bounds the filters of one observer.
const maxSubjects = 32

// Tail implements the service. Every gateway reads every partition, so the one
// that is asked shows all.
func (s *Service) Tail(r *adminv1.TailRequest, st grpc.ServerStreamingServer[adminv1.TailResponse]) error {
	ctx, cancel := context.WithCancel(st.Context())
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	a, err := address.Parse(r.GetAddress())
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "the address: %v", err)
	}
	if n := len(r.GetSubjects()); n > maxSubjects {
		return status.Errorf(codes.InvalidArgument, "%d filters of subjects are given, %d are allowed", n, maxSubjects)
	}
	filter, err := subject.NewFilter(r.GetSubjects()...)
	if err != nil {
		return status.Errorf(codes.InvalidArgument, "the filter of subjects: %v", err)
	}
	o, stop, err := s.o.Router.Observe(a, filter)
	if err != nil {
		err = status.Error(codes.ResourceExhausted, "this gateway has as many observers as it allows; end one, or ask another gateway")
	}
	s.acted(ctx, audit.Operate, "tail", a.String(), err)
	if err != nil {
		return err
	}
	defer stop()
	if err := st.Send(&adminv1.TailResponse{}); err != nil {
		return err
	}
	for {
		waiting, cancel := context.WithTimeout(ctx, recheckEvery)
		m, dropped, err := o.Next(waiting)
		cancel()
		switch revoked := s.counts(operatorOf(ctx).credential); {
		case s.closing.Err() != nil:
			return status.Error(codes.Unavailable, "the gateway is shutting down; ask another")
		case revoked != nil:
			return status.Error(auth.Code(revoked), revoked.Error())
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return status.Error(codes.Unauthenticated, "the credential has expired")
		case ctx.Err() != nil:
			return status.FromContextError(ctx.Err()).Err()
		case err != nil:
			continue
		}
		stored, err := storedMessage(m.Envelope, m.Position)
		if err != nil {
			continue // the tail has complained of it
		}
		if err := st.Send(&adminv1.TailResponse{Message: stored, Dropped: dropped}); err != nil {
			return err
		}
	}
}

// counts returns an error if the credential of an operator at work counts no
// more.
func (s *Service) counts(c *auth.Credential) error {
	if c.Withdrawn() {
		return auth.ErrRevoked
	}
	return s.o.Revoked(c)
}

// storedMessage is an envelope for operators.
func storedMessage(envelope []byte, position uint64) (*adminv1.StoredMessage, error) {
	var e aetherv1.MessageEnvelope
	if err := proto.Unmarshal(envelope, &e); err != nil {
		return nil, err
	}
	return storedEnvelope(&e, position), nil
}

func storedEnvelope(e *aetherv1.MessageEnvelope, position uint64) *adminv1.StoredMessage {
	m := &adminv1.StoredMessage{
		Source: e.GetSource(), Topic: e.GetTopic(), MessageId: e.GetMessageId(), MessageType: typeName(e.GetMessageType()),
		Workspace: e.GetWorkspace(), Payload: e.GetPayload(), Subject: e.GetSubject(), Metadata: e.GetMetadata(),
		TimestampMs: e.GetTimestampMs(), ExpiresAtMs: e.GetExpiresAtMs(), Position: position,
	}
	var u aetherv1.ProgressUpdate
	if e.GetKind() == aetherv1.MessageEnvelope_KIND_PROGRESS && proto.Unmarshal(e.GetPayload(), &u) == nil {
		m.MessageType = "progress"
		m.Progress = &adminv1.StoredProgress{
			Source: u.GetSource(), TaskId: u.GetTaskId(), State: u.GetState(), Completion: u.GetCompletion(), Summary: u.GetSummary(),
			Step: u.GetStep().GetName(), StepNumber: u.GetStep().GetSequence(), TotalSteps: u.GetStep().GetTotalSteps(), Recipient: u.GetRecipient(),
		}
	}
	return m
}

func typeName(t aetherv1.MessageType) string {
	return strings.ToLower(strings.TrimPrefix(t.String(), "MESSAGE_TYPE_"))
}
