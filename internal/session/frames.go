package session

import (
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/router"
)

// frame encodes what the gateway itself says. It cannot fail: all texts in it
// are valid UTF-8.
func frame(m *aetherv1.DownstreamMessage) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		panic("session: a frame of the gateway cannot be encoded: " + err.Error())
	}
	return b
}

func heartbeatFrame(now time.Time) []byte {
	return frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Heartbeat{
		Heartbeat: &aetherv1.Heartbeat{SentAtMs: now.UnixMilli()},
	}})
}

func signalFrame(kind aetherv1.Signal_SignalType, reason, code string, after time.Duration) []byte {
	return frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Signal{
		Signal: &aetherv1.Signal{Type: kind, Reason: reason, Code: code, ReconnectAfterMs: after.Milliseconds()},
	}})
}

func expiringFrame(atMs int64) []byte {
	return frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_CredentialExpiring{
		CredentialExpiring: &aetherv1.CredentialExpiring{ExpiresAtMs: atMs},
	}})
}

func reauthenticatedFrame(atMs int64) []byte {
	return frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Reauthenticated{
		Reauthenticated: &aetherv1.Reauthenticated{ExpiresAtMs: atMs},
	}})
}

func switchedFrame(workspace string) []byte {
	return frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_WorkspaceSwitched{
		WorkspaceSwitched: &aetherv1.WorkspaceSwitched{Workspace: workspace},
	}})
}

func gapFrame(g *aetherv1.HistoryGap) []byte {
	return frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Gap{Gap: g}})
}

func laggedFrame(g delivery.Gap) []byte {
	return gapFrame(&aetherv1.HistoryGap{
		Topic: g.Topic, Reason: aetherv1.HistoryGap_REASON_LAGGED, Dropped: g.Dropped, DroppedBytes: g.Bytes,
	})
}

// gap tells the client of missing messages, if it can be told.
func (s *Session) gap(g router.Gap) {
	if !s.extended {
		return
	}
	gap := &aetherv1.HistoryGap{Topic: g.Topic, Reason: aetherv1.HistoryGap_Reason(g.Reason)}
	if g.HasFirst {
		gap.FirstMissing = &g.FirstMissing
	}
	s.urgent(gapFrame(gap))
}

// greet sends the ConnectionAck, and the ConfigSnapshot to those who get one,
// before any delivery.
func (s *Session) greet() error {
	ack := &aetherv1.ConnectionAck{
		SessionId: s.id, Resumed: s.resumed, AssignedId: s.assigned, ServerVersion: s.m.o.Version,
		NegotiatedExtensions: s.extensions, InitialConnectionUnixMs: s.since.UnixMilli(),
		MaxPayloadBytes: uint64(s.m.o.Router.MaxPayload()), HeartbeatIntervalMs: s.m.o.HeartbeatInterval.Milliseconds(),
		CredentialExpiresAtMs: s.life.held.Load().expiresAtMs(), Epoch: s.lease.Epoch,
	}
	if err := s.write(frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_ConnectionAck{ConnectionAck: ack}})); err != nil {
		return err
	}
	if snapshot := s.snapshot(); snapshot != nil {
		snapshot.TaskContext = s.started.context
		return s.write(frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Config{Config: snapshot}}))
	}
	return nil
}
