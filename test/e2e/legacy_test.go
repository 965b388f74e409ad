package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/aether-gateway/gateway/test/legacy"
)

// old is a client whose descriptor has no field of the extension.
type old struct {
	t      *testing.T
	stream *legacy.Stream
	kept   []*dynamicpb.Message
}

func connectOld(t *testing.T, g *gateway, id legacy.Identity, place string, flags []string) *old {
	t.Helper()
	token, err := createToken(flags...)
	check(t, err)
	conn, err := grpc.NewClient("passthrough:///"+g.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(cancel)
	o := &old{t: t}
	o.stream, err = legacy.Dial(ctx, conn)
	check(t, err)
	if place == "authorization" {
		token = "Bearer " + token
	}
	check(t, o.stream.Send(legacy.InitFrame(id, map[string]string{place: token}, "")))
	frame := o.recv()
	if member, _ := legacy.Payload(frame); member != "connection_ack" || legacy.Get(frame, "connection_ack", "session_id").String() == "" {
		t.Fatalf("the first frame is %v", frame)
	}
	return o
}

// recv returns the next frame, in which this client must know the member of
// the oneof, and which must carry no batch.
func (o *old) recv() *dynamicpb.Message {
	o.t.Helper()
	frame, _, err := o.stream.Recv()
	check(o.t, err)
	for _, u := range legacy.UnknownFields(frame) {
		if u.Message == "aether.v1.DownstreamMessage" {
			o.t.Fatalf("the client was sent the member %d, which it does not know", u.Number)
		}
	}
	if member, _ := legacy.Payload(frame); member == "" {
		o.t.Fatalf("the client was sent a frame without a payload that it knows: %v", frame)
	}
	return frame
}

func (o *old) next(member protoreflect.Name) *dynamicpb.Message {
	o.t.Helper()
	for i, frame := range o.kept {
		if m, _ := legacy.Payload(frame); m == member {
			o.kept = append(o.kept[:i], o.kept[i+1:]...)
			return frame
		}
	}
	for {
		frame := o.recv()
		if m, _ := legacy.Payload(frame); m == member {
			return frame
		}
		o.kept = append(o.kept, frame)
	}
}

func (o *old) wantMessage(source, payload, ws string) {
	o.t.Helper()
	m := o.next("msg")
	got := []string{
		legacy.Get(m, "msg", "source_topic").String(), string(legacy.Get(m, "msg", "payload").Bytes()), legacy.Get(m, "msg", "workspace").String(),
	}
	if got[0] != source || got[1] != payload || got[2] != ws || legacy.Get(m, "msg", "message_type").Enum() != 1 {
		o.t.Errorf("got %.60q, want %.60q", got, []string{source, payload, ws})
	}
}

func (o *old) wantError(code string) {
	o.t.Helper()
	m := o.next("error")
	if got := legacy.Get(m, "error", "code").String(); got != code || legacy.Get(m, "error", "message").String() == "" {
		o.t.Errorf("got %v, want %s", m, code)
	}
}

// Clients of the base protocol, which know no acknowledgements, receipts,
// heartbeats and gaps, connect, send, receive and are told errors.
func testLegacy(t *testing.T, g *gateway) {
	ws := workspace(t)
	a := connectOld(t, g, legacy.Agent(ws, "i", "a"), "authorization", agent(ws, "i", "a").flags)
	u := connectOld(t, g, legacy.User(ws, "w"), "bearer_token", user(ws, "w", ws).flags)
	if member, _ := legacy.Payload(a.recv()); member != "config" {
		t.Errorf("the agent's second frame is %s, want config", member)
	}
	agentName, userName := "ag::"+ws+"::i::a", "us::"+ws+"::w"

	// Both ways, live, and by broadcast.
	for i := range 20 {
		text := fmt.Sprintf("%d", i)
		check(t, u.stream.Send(legacy.SendFrame(agentName, []byte(text), 1)))
		a.wantMessage(userName, text, ws)
		check(t, a.stream.Send(legacy.SendFrame(userName, []byte(text), 1)))
		u.wantMessage(agentName, text, ws)
	}
	check(t, u.stream.Send(legacy.SendFrame("ga::"+ws, []byte("all agents"), 1)))
	a.wantMessage(userName, "all agents", ws)
	check(t, a.stream.Send(legacy.SendFrame("gu::"+ws, []byte("all users"), 1)))
	u.wantMessage(agentName, "all users", ws)

	// Errors; the stream goes on.
	check(t, u.stream.Send(legacy.SendFrame("event::"+ws, nil, 4)))
	u.wantError("ERR_PERMISSION_DENIED")
	check(t, u.stream.Send(legacy.SendFrame("nonsense", nil, 1)))
	u.wantError("ERR_INVALID_TOPIC")
	check(t, u.stream.Send(legacy.SendFrame(agentName, nil, 77)))
	u.wantError("ERR_INVALID_ARGUMENT")
	check(t, u.stream.Send(legacy.SendFrame(agentName, make([]byte, 1_000_001), 1)))
	u.wantError("ERR_PAYLOAD_TOO_LARGE")
	frame, _ := legacy.NewFrame("tunnel_open")
	check(t, u.stream.Send(frame))
	u.wantError("ERR_NOT_IMPLEMENTED")

	// A message of a modern client, with all that it may carry.
	modern := connect(t, g, agent(ws, "i", "modern"))
	m := chat(agentName, "rich")
	m.MessageId, m.Subject, m.Metadata, m.TtlMs = "id", "a.v1.b", map[string]string{"correlation-id": "c"}, 60_000
	modern.accepted(m)
	a.wantMessage(modern.name(), "rich", ws)

	// Silence, in which modern clients get heartbeats.
	modern.beats(3)
	// A flood that this one does not read: modern ones get gaps.
	const flood = 300
	fill := strings.Repeat("x", 20_000)
	modern.stored("ga::"+ws, numbered(fill, 1, flood)...)
	// Refused while nobody knows it yet.
	if _, err := dial(t, g, agent(ws, "i", "a")); statusOf(err).Code() != codes.AlreadyExists {
		t.Errorf("a second %s: %v", agentName, err)
	}
	modern.stored("ga::"+ws, "last")
	for got := 0; ; got++ {
		m := a.next("msg")
		if string(legacy.Get(m, "msg", "payload").Bytes()) == "last" {
			t.Logf("%d of %d broadcasts reached the reader that was behind", got, flood)
			break
		}
	}

	// Away and back: what waits comes, what was read before a half-close not.
	check(t, a.stream.CloseSend())
	for {
		_, _, err := a.stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		check(t, err)
	}
	for i := range 10 {
		check(t, u.stream.Send(legacy.SendFrame(agentName, []byte(fmt.Sprintf("waiting %d", i)), 1)))
	}
	a = connectOld(t, g, legacy.Agent(ws, "i", "a"), "authorization", agent(ws, "i", "a").flags)
	for i := range 10 {
		a.wantMessage(userName, fmt.Sprintf("waiting %d", i), ws)
	}
	for _, o := range []*old{a, u} {
		for _, frame := range o.kept {
			if m, _ := legacy.Payload(frame); m != "config" {
				t.Errorf("a frame that nobody expected: %v", frame)
			}
		}
	}
}
