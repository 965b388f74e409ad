package session

import (
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// handle acts on one frame of the client.
func (s *Session) handle(frame *aetherv1.UpstreamMessage) {
	if len(frame.GetBatch()) > 0 {
		s.refuse("", wireerr.New(wireerr.InvalidArgument, "batches were not negotiated"))
		return
	}
	switch p := frame.GetPayload().(type) {
	case *aetherv1.UpstreamMessage_Send:
		if err := s.sender.Send(p.Send); err != nil {
			s.record("send", p.Send.GetTargetTopic(), err)
			s.urgent(router.ErrorFrame(p.Send.GetRequestId(), err))
		}
	case *aetherv1.UpstreamMessage_Ack:
		s.acknowledge(p.Ack)
	case *aetherv1.UpstreamMessage_Reauthenticate:
		s.reauthenticate(p.Reauthenticate)
	case *aetherv1.UpstreamMessage_UpdateFilters:
		s.updateFilters(p.UpdateFilters)
	case *aetherv1.UpstreamMessage_Heartbeat:
		// One answer at a time: that is all that a client can want, however
		// many it sends.
		if !s.answering.Swap(true) {
			s.urgent(heartbeatFrame(s.m.o.Now()))
		}
	case *aetherv1.UpstreamMessage_CreateTask:
		s.task(p.CreateTask, p.CreateTask.GetRequestId())
	case *aetherv1.UpstreamMessage_TaskQuery:
		s.task(p.TaskQuery, p.TaskQuery.GetRequestId())
	case *aetherv1.UpstreamMessage_TaskOp:
		s.task(p.TaskOp, p.TaskOp.GetRequestId())
	case *aetherv1.UpstreamMessage_TaskSubscriptionOp:
		s.task(p.TaskSubscriptionOp, p.TaskSubscriptionOp.GetClientRequestId())
	case *aetherv1.UpstreamMessage_Progress:
		s.progress(p.Progress)
	case *aetherv1.UpstreamMessage_AuthorityGrantOp:
		s.grantOp(p.AuthorityGrantOp)
	case *aetherv1.UpstreamMessage_ResolveAuthorityRequest:
		s.resolve(p.ResolveAuthorityRequest)
	case *aetherv1.UpstreamMessage_ConnectionStatusRequest:
		s.status(p.ConnectionStatusRequest)
	case *aetherv1.UpstreamMessage_WhereIs:
		s.whereIs(p.WhereIs)
	case *aetherv1.UpstreamMessage_KvOp:
		s.keys(p.KvOp)
	case *aetherv1.UpstreamMessage_CheckpointOp:
		s.checkpoint(p.CheckpointOp)
	case *aetherv1.UpstreamMessage_Init:
		s.end(cause{err: status.Error(codes.InvalidArgument, "a second init on one stream"), flush: true})
	case nil:
		s.refuse("", wireerr.New(wireerr.InvalidArgument, "the frame has no payload that the gateway knows"))
	default:
		s.refuse(requestID(frame), wireerr.New(wireerr.NotImplemented, "%s is not supported", member(frame)))
	}
}

func (s *Session) refuse(requestID string, err *wireerr.Error) {
	s.record("request", "", err)
	s.urgent(router.ErrorFrame(requestID, err))
}

// maxAcks bounds the single acknowledgements of one frame.
const maxAcks = 10_000

func (s *Session) acknowledge(a *aetherv1.DeliveryAck) {
	if len(a.GetIds())+len(a.GetNack()) > maxAcks {
		s.refuse("", wireerr.New(wireerr.InvalidArgument, "a frame may acknowledge %d single deliveries", maxAcks))
		return
	}
	if a.GetUpTo() == 0 && len(a.GetIds()) == 0 && len(a.GetNack()) == 0 {
		s.refuse("", wireerr.New(wireerr.InvalidArgument, "an empty acknowledgement"))
		return
	}
	if err := s.acks(a); err != nil {
		var e *delivery.AckError
		if errors.As(err, &e) {
			s.refuse("", wireerr.New(wireerr.InvalidArgument, "%v", e))
		}
	}
}

// acks does all that can be done and returns the first refusal. Nacks go
// first: what is nacked is not meant by a cumulative acknowledgement.
func (s *Session) acks(a *aetherv1.DeliveryAck) error {
	var first error
	note := func(err error) {
		if first == nil {
			first = err
		}
	}
	for _, n := range a.GetNack() {
		nacked, err := s.box.Nack(n.GetDeliveryId(), n.GetRequeue(), reasonOf(n))
		note(err)
		if err == nil && n.GetRequeue() && nacked.Inbox != nil {
			s.m.o.Router.Nacked(nacked)
		}
	}
	if a.GetUpTo() != 0 {
		note(s.box.Ack(a.GetUpTo()))
	}
	for _, id := range a.GetIds() {
		note(s.box.AckOne(id))
	}
	return first
}

// maxReason bounds what is told of why a delivery was refused, in bytes.
const maxReason = 256

func reasonOf(n *aetherv1.Nack) string {
	reason := n.GetReason()
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	return reason
}

// member names the oneof member of a frame.
func member(frame *aetherv1.UpstreamMessage) string {
	m := frame.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("payload"))
	if field == nil {
		return "the frame"
	}
	return string(field.Name())
}

// requestID finds the request id of a frame of whatever type.
func requestID(frame *aetherv1.UpstreamMessage) string {
	m := frame.ProtoReflect()
	field := m.WhichOneof(m.Descriptor().Oneofs().ByName("payload"))
	if field == nil {
		return ""
	}
	inner := m.Get(field).Message()
	for _, name := range []string{"request_id", "client_request_id"} {
		for i := range inner.Descriptor().Fields().Len() {
			if f := inner.Descriptor().Fields().Get(i); string(f.Name()) == name {
				return inner.Get(f).String()
			}
		}
	}
	return ""
}
