package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of a downstream frame, as far as they tell of a delivery.
const (
	fieldMessage     = 1   // DownstreamMessage.msg
	fieldMessageID   = 100 // IncomingMessage
	fieldTopic       = 102
	fieldRedelivered = 104
	fieldMetadata    = 106
)

// Delivered makes a span of a downstream frame that was written to its client,
// if it holds a message of a trace.
func (t *Tracer) Delivered(frame []byte) {
	if t == nil {
		return
	}
	t.delivered(frame)
}

func (t *Tracer) delivered(frame []byte) {
	var id, topic []byte
	var metadata propagation.MapCarrier
	redelivered := false
	each(frame, func(field protowire.Number, message []byte, _ uint64) {
		if field != fieldMessage {
			return
		}
		each(message, func(field protowire.Number, val []byte, n uint64) {
			switch field {
			case fieldMessageID:
				id = val
			case fieldTopic:
				topic = val
			case fieldRedelivered:
				redelivered = n != 0
			case fieldMetadata:
				metadata = with(metadata, val)
			}
		})
	})
	if metadata == nil {
		return
	}
	ctx := carrier.Extract(context.Background(), metadata)
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	prefix, _, _ := strings.Cut(string(topic), "::")
	s := t.start(ctx, "aether.deliver", trace.WithSpanKind(trace.SpanKindConsumer), trace.WithAttributes(
		attribute.String("messaging.message.id", string(id)), attribute.String("aether.prefix", prefix), attribute.Bool("aether.redelivered", redelivered)))
	s.End("")
}

// with adds an entry of metadata if it is one of trace context.
func with(m propagation.MapCarrier, entry []byte) propagation.MapCarrier {
	var key, val []byte
	each(entry, func(field protowire.Number, b []byte, _ uint64) {
		switch field {
		case 1:
			key = b
		case 2:
			val = b
		}
	})
	if k := string(key); k == "traceparent" || k == "tracestate" {
		if m == nil {
			m = propagation.MapCarrier{}
		}
		m[k] = string(val)
	}
	return m
}

// each calls f for every field of bytes and every number in b, as far as b can be
// read.
func each(b []byte, f func(field protowire.Number, val []byte, n uint64)) {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, typ, b)
		if size < 0 {
			return
		}
		switch typ {
		case protowire.BytesType:
			val, _ := protowire.ConsumeBytes(b)
			f(num, val, 0)
		case protowire.VarintType:
			v, _ := protowire.ConsumeVarint(b)
			f(num, nil, v)
		}
		b = b[size:]
	}
}
