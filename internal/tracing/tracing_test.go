package tracing

import (
	"context"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup is a tracer whose spans are kept.
func setup(t *testing.T, oneIn int64) (*Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	kept := tracetest.NewSpanRecorder()
	tracer := open(sdk.WithSpanProcessor(kept), Options{OneIn: oneIn})
	t.Cleanup(func() {
		if err := tracer.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return tracer, kept
}

func frameOf(t testing.TB, metadata map[string]string) []byte {
	t.Helper()
	frame, err := proto.Marshal(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Msg{Msg: &aetherv1.IncomingMessage{
		MessageId: "m", Topic: "ag::w::i::s", Redelivered: true, Metadata: metadata,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return frame
}

// What is sent, stored and delivered is one trace, which the metadata carry.
func Test20SpansAreLinked(t *testing.T) {
	t.Parallel()
	tracer, kept := setup(t, 1)
	given := map[string]string{"correlation-id": "7"}
	send := tracer.Start("aether.send", given)
	publish := send.Child("aether.publish")
	metadata := send.Inject(given)
	if len(given) != 1 || metadata["correlation-id"] != "7" || metadata["traceparent"] == "" {
		t.Fatalf("%v became %v", given, metadata)
	}
	send.Of("m", "ag")
	send.End("")
	tracer.Delivered(frameOf(t, metadata))
	publish.End("ERR_PUBLISH_FAILED")
	publish.End("")
	spans := kept.Ended()
	if len(spans) != 3 {
		t.Fatalf("%d spans", len(spans))
	}
	root := spans[0].SpanContext()
	for i, name := range []string{"aether.send", "aether.deliver", "aether.publish"} {
		if spans[i].Name() != name || spans[i].SpanContext().TraceID() != root.TraceID() || i > 0 && spans[i].Parent().SpanID() != root.SpanID() {
			t.Errorf("span %d is %s of %s in %s", i, spans[i].Name(), spans[i].Parent().SpanID(), spans[i].SpanContext().TraceID())
		}
	}
	if s := spans[2].Status(); s.Code != codes.Error || s.Description != "ERR_PUBLISH_FAILED" {
		t.Errorf("status %v", s)
	}
}

// A message of a trace that the client began is traced as the client says.
func Test20TraceOfTheClient(t *testing.T) {
	t.Parallel()
	tracer, kept := setup(t, 1<<40) // none of its own
	const id = "0af7651916cd43dd8448eb211c80319c"
	tracer.Start("aether.send", map[string]string{"traceparent": "00-" + id + "-b7ad6b7169203331-01"}).End("")
	for _, metadata := range []map[string]string{
		nil, {"traceparent": "rubbish"}, {"traceparent": "00-" + id + "-b7ad6b7169203331-00"},
	} {
		if s := tracer.Start("aether.send", metadata); s != nil {
			t.Errorf("%v is traced", metadata)
		}
		tracer.Delivered(frameOf(t, metadata))
	}
	tracer.Delivered([]byte{0xff, 0xff})
	if spans := kept.Ended(); len(spans) != 1 || spans[0].SpanContext().TraceID().String() != id {
		t.Errorf("%d spans", len(spans))
	}
}

// Without tracing nothing is allocated.
func Test20OffCostsNothing(t *testing.T) {
	var tracer *Tracer
	metadata := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
	frame := frameOf(t, metadata)
	n := testing.AllocsPerRun(100, func() {
		s := tracer.Start("aether.send", metadata)
		s.Of("m", "ag")
		s.Inject(metadata)
		s.Child("aether.publish").End("")
		s.End("")
		tracer.Delivered(frame)
	})
	if n != 0 || tracer.Close(t.Context()) != nil {
		t.Errorf("%v allocations", n)
	}
}

// FuzzDelivered: whatever a frame is, looking at it ends.
func FuzzDelivered(f *testing.F) {
	f.Add(frameOf(f, map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=b"}))
	f.Add([]byte{0x0a, 0x80})
	tracer := open(sdk.WithSpanProcessor(tracetest.NewSpanRecorder()), Options{OneIn: 1})
	f.Fuzz(func(_ *testing.T, frame []byte) { tracer.Delivered(frame) })
}
