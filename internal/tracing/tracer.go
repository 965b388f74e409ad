package tracing

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Options configure a [Tracer]. Endpoint is required.
type Options struct {
	// Endpoint is where spans go by OTLP over gRPC: http://HOST:PORT, or https://.
	Endpoint string
	// OneIn is of how many messages that belong to no trace yet one is traced; at
	// least 1. A message of a trace is traced if that is.
	OneIn int64
	// Instance and Version name the gateway.
	Instance, Version string
	// Failed is told why spans are lost; nil: nobody is.
	Failed func(error)
}

// Tracer makes spans and sends them away, in batches, beside everything else;
// what waits is bounded, and spans beyond that are dropped. Methods are safe for
// concurrent use.
type Tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
}

// Open returns a tracer. It connects in the background. It must be closed.
func Open(ctx context.Context, o Options) (*Tracer, error) {
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(o.Endpoint))
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	return open(sdk.WithBatcher(telling{exporter, o.Failed}), o), nil
}

// telling is an exporter whose failures are told.
type telling struct {
	sdk.SpanExporter
	failed func(error)
}

// ExportSpans implements [sdk.SpanExporter].
func (e telling) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil && e.failed != nil {
		e.failed(err)
	}
	return nil // it has been told, and is not logged again by the library
}

func open(to sdk.TracerProviderOption, o Options) *Tracer {
	provider := sdk.NewTracerProvider(to,
		sdk.WithSampler(sdk.ParentBased(sdk.TraceIDRatioBased(1/float64(max(o.OneIn, 1))))),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "aether-gateway"), attribute.String("service.instance.id", o.Instance),
			attribute.String("service.version", o.Version),
		)))
	return &Tracer{provider: provider, tracer: provider.Tracer("github.com/aether-gateway/gateway")}
}

// Close sends what waits, as far as ctx allows, and stops.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// Span is something that a gateway does with a message. Methods may be called
// concurrently. End is called once; later calls change nothing.
type Span struct {
	t    *Tracer
	ctx  context.Context
	span trace.Span
}

// carrier is the metadata of a message.
var carrier = propagation.TraceContext{}

// Start begins a span of a message with that metadata, in the trace that they
// name or a new one. It is nil if the message is not traced.
func (t *Tracer) Start(name string, metadata map[string]string) *Span {
	if t == nil {
		return nil
	}
	ctx := carrier.Extract(context.Background(), propagation.MapCarrier(metadata))
	return t.start(ctx, name)
}

func (t *Tracer) start(ctx context.Context, name string, options ...trace.SpanStartOption) *Span {
	ctx, span := t.tracer.Start(ctx, name, options...)
	if !span.IsRecording() {
		return nil
	}
	return &Span{t: t, ctx: ctx, span: span}
}

// Child begins a span within this one.
func (s *Span) Child(name string) *Span {
	if s == nil {
		return nil
	}
	return s.t.start(s.ctx, name)
}

// Inject returns metadata that name this span as what comes before whatever
// happens to the message next. The given ones are not changed.
func (s *Span) Inject(metadata map[string]string) map[string]string {
	if s == nil {
		return metadata
	}
	own := make(map[string]string, len(metadata)+2)
	for k, v := range metadata {
		own[k] = v
	}
	carrier.Inject(s.ctx, propagation.MapCarrier(own))
	return own
}

// Of says which message it is, and of which kind its address is.
func (s *Span) Of(messageID, prefix string) {
	if s != nil {
		s.span.SetAttributes(attribute.String("messaging.message.id", messageID), attribute.String("aether.prefix", prefix))
	}
}

// End ends the span. outcome is "" if all went well, else what went wrong.
func (s *Span) End(outcome string) {
	if s == nil {
		return
	}
	if outcome != "" {
		s.span.SetStatus(codes.Error, outcome)
	}
	s.span.End()
}
