package legacy_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/test/legacy"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what comes at once when all is well.
const patience = 10 * time.Second

// server is a gateway whose behaviour the test writes.
type server struct {
	aetherv1.UnimplementedAetherGatewayServer
	connect func(aetherv1.AetherGateway_ConnectServer) error
}

func (s *server) Connect(stream aetherv1.AetherGateway_ConnectServer) error { return s.connect(stream) }

// dial opens a stream to a server that does what connect does.
func dial(t *testing.T, connect func(aetherv1.AetherGateway_ConnectServer) error) *legacy.Stream {
	t.Helper()
	listener := bufconn.Listen(64 << 10)
	srv := grpc.NewServer()
	aetherv1.RegisterAetherGatewayServer(srv, &server{connect: connect})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }()

	conn, err := grpc.NewClient("passthrough:///test",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(func() {
		cancel()
		if err := conn.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		srv.Stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	stream, err := legacy.Dial(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func TestFramesReachTheServerAsGenerated(t *testing.T) {
	t.Parallel()
	received := make(chan *aetherv1.UpstreamMessage, 3)
	stream := dial(t, func(s aetherv1.AetherGateway_ConnectServer) error {
		for {
			m, err := s.Recv()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
			received <- m
		}
	})
	frames := []struct {
		sent *dynamicpb.Message
		want *aetherv1.UpstreamMessage
	}{
		{
			legacy.InitFrame(legacy.Task("w", "i", ""), map[string]string{"token": "t"}, "s1"),
			&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Init{Init: &aetherv1.InitConnection{
				Identity:    &aetherv1.InitConnection_Task{Task: &aetherv1.TaskIdentity{Workspace: "w", Implementation: "i"}},
				Credentials: map[string]string{"token": "t"}, ResumeSessionId: "s1",
			}}},
		},
		{
			legacy.SendFrame("ag::w::i::s", []byte("p"), 1),
			&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Send{Send: &aetherv1.SendMessage{
				TargetTopic: "ag::w::i::s", Payload: []byte("p"), MessageType: aetherv1.MessageType_MESSAGE_TYPE_CHAT,
			}}},
		},
		{
			legacy.SwitchWorkspaceFrame("w2"),
			&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_SwitchWorkspace{
				SwitchWorkspace: &aetherv1.SwitchWorkspace{NewWorkspaceId: "w2"},
			}},
		},
	}
	for _, f := range frames {
		if err := stream.Send(f.sent); err != nil {
			t.Fatal(err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("a clean end is %v", err)
	}
	for _, f := range frames {
		if got := <-received; !proto.Equal(got, f.want) {
			t.Errorf("the server got %v, want %v", got, f.want)
		}
	}
}

func TestEveryIdentityIsClaimedInItsOwnMember(t *testing.T) {
	t.Parallel()
	for member, id := range map[protoreflect.Name]legacy.Identity{
		"agent": legacy.Agent("w", "i", "s"), "task": legacy.Task("w", "i", "s"), "user": legacy.User("u", "1"),
		"orchestrator": legacy.Orchestrator("i", "s"), "workflow_engine": legacy.WorkflowEngine("1"),
		"metrics_bridge": legacy.MetricsBridge("1"), "bridge": legacy.Bridge("i", "s"), "service": legacy.Service("i", "s"),
	} {
		_, init := legacy.Payload(legacy.InitFrame(id, nil, ""))
		claimed := init.WhichOneof(init.Descriptor().Oneofs().ByName("identity"))
		if claimed == nil || claimed.Name() != member {
			t.Errorf("%s is claimed as %v", member, claimed)
			continue
		}
		init.Get(claimed).Message().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			if v.String() == "" {
				t.Errorf("%s is empty", f.FullName())
			}
			return true
		})
	}
}

func TestExtensionsAreReportedAtAnyDepth(t *testing.T) {
	t.Parallel()
	down := []struct {
		name   string
		frame  *aetherv1.DownstreamMessage
		member protoreflect.Name
		want   []protowire.Number
	}{
		{
			"base frame",
			&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_ConnectionAck{
				ConnectionAck: &aetherv1.ConnectionAck{SessionId: "s1", AssignedId: "a1"},
			}},
			"connection_ack", nil,
		},
		{
			"fields of a known message",
			&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Msg{Msg: &aetherv1.IncomingMessage{
				SourceTopic: "ag::w::i::s", MessageId: "m", Topic: "ag::w::i::t", Position: proto.Uint64(0),
				Metadata: map[string]string{"a": "1", "b": "2"},
			}}},
			"msg",
			[]protowire.Number{100, 102, 106, 107},
		},
		{
			"a member of the oneof",
			&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Gap{Gap: &aetherv1.HistoryGap{Topic: "ga::w"}}},
			"",
			[]protowire.Number{101},
		},
		{
			"outside of the oneof",
			&aetherv1.DownstreamMessage{Batch: []*aetherv1.DownstreamMessage{{}, {}}},
			"",
			[]protowire.Number{110},
		},
	}
	stream := dial(t, func(s aetherv1.AetherGateway_ConnectServer) error {
		for _, d := range down {
			if err := s.Send(d.frame); err != nil {
				return err
			}
		}
		return status.Error(codes.Aborted, "enough")
	})
	for _, d := range down {
		frame, numbers, err := stream.Recv()
		if err != nil {
			t.Fatalf("%s: %v", d.name, err)
		}
		if member, _ := legacy.Payload(frame); member != d.member {
			t.Errorf("%s: payload %q, want %q", d.name, member, d.member)
		}
		if !slices.Equal(numbers, d.want) {
			t.Errorf("%s: unknown fields %v, want %v", d.name, numbers, d.want)
		}
		switch d.member {
		case "connection_ack":
			if got := legacy.Get(frame, "connection_ack", "session_id").String(); got != "s1" {
				t.Errorf("session id %q", got)
			}
		case "msg":
			if got := legacy.Get(frame, "msg", "source_topic").String(); got != "ag::w::i::s" {
				t.Errorf("source %q", got)
			}
		}
	}
	if _, _, err := stream.Recv(); status.Code(err) != codes.Aborted {
		t.Errorf("the end is %v", err)
	}
}

// An unknown field in a list of messages has no other way to be seen than the walk.
func TestUnknownFieldsNameTheirMessage(t *testing.T) {
	t.Parallel()
	frame, op := legacy.NewFrame("authority_grant_op")
	batch := op.Mutable(op.Descriptor().Fields().ByName("batch_exchange_request")).Message()
	requests := batch.Mutable(batch.Descriptor().Fields().ByName("requests")).List()
	request := requests.NewElement()
	request.Message().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, 500, protowire.VarintType), 1))
	requests.Append(request)

	got := legacy.UnknownFields(frame)
	want := []legacy.Unknown{{Message: "aether.v1.AuthorityGrantExchangeRequest", Number: 500}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestFieldsThatTheBaseProtocolLacksAreRefused(t *testing.T) {
	t.Parallel()
	refused := func(do func()) (panicked bool) {
		defer func() { panicked = recover() != nil }()
		do()
		return false
	}
	if !refused(func() { legacy.NewFrame("ack") }) {
		t.Error("a frame of the extensions was made")
	}
	if !refused(func() { legacy.Get(legacy.SendFrame("", nil, 0), "send", "message_id") }) {
		t.Error("a field of the extensions was read")
	}
}
