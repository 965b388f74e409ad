package gateway_test

import (
	"context"
	"net"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/tracing"
)

// spanCollector keeps the spans that it is sent.
type spanCollector struct {
	collector.UnimplementedTraceServiceServer
	mu   sync.Mutex
	list []*spans.Span
}

func (c *spanCollector) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			c.list = append(c.list, scope.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// A message is sent, stored, and delivered later out of the log: one trace, whose
// context the receiver gets in the metadata. Without a tracer it gets none.
func Test20TracesGoThroughTheLog(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	kept := &spanCollector{}
	server := grpc.NewServer()
	collector.RegisterTraceServiceServer(server, kept)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(lis) })
	t.Cleanup(serving.Wait)
	t.Cleanup(server.Stop)
	tracer, err := tracing.Open(t.Context(), tracing.Options{Endpoint: "http://" + lis.Addr().String(), OneIn: 1})
	if err != nil {
		t.Fatal(err)
	}
	g := gatewaytest.Start(t, func(o *gateway.Options) { o.Tracer = tracer })
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1"))
	user.Send(send(echo, "1", "1"))
	user.Receipt()
	user.Send(&aetherv1.SendMessage{TargetTopic: "ag::elsewhere::i::s", RequestId: "2"})
	user.Error()
	agent := gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "echo"), gatewaytest.AgentInit("w", "echo", "1"))
	if m := agent.Message(); m.GetMetadata()["traceparent"] == "" {
		t.Errorf("got %v", m)
	}
	g.Stop()
	if err := tracer.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	kept.mu.Lock()
	defer kept.mu.Unlock()
	byName := map[string][]*spans.Span{}
	for _, s := range kept.list {
		byName[s.GetName()] = append(byName[s.GetName()], s)
	}
	sends, publish, deliver := byName["aether.send"], byName["aether.publish"], byName["aether.deliver"]
	if len(sends) != 2 || len(publish) != 1 || len(deliver) != 1 {
		t.Fatalf("got %v", kept.list)
	}
	root := sends[0]
	for _, s := range []*spans.Span{publish[0], deliver[0]} {
		if string(s.GetTraceId()) != string(root.GetTraceId()) || string(s.GetParentSpanId()) != string(root.GetSpanId()) {
			t.Errorf("%s is not below the send", s.GetName())
		}
	}
	if s := sends[1].GetStatus(); s.GetCode() != spans.Status_STATUS_CODE_ERROR || s.GetMessage() != "ERR_PERMISSION_DENIED" {
		t.Errorf("the refused send has the status %v", s)
	}
}
