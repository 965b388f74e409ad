package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/tracing"
	"github.com/aether-gateway/gateway/internal/version"
)

// openTracer returns what makes spans, nil if nobody wants them. It never keeps
// the gateway from serving.
func openTracer(ctx context.Context, cfg *config.Config, log *slog.Logger) *tracing.Tracer {
	if cfg.Tracing.Endpoint == "" {
		return nil
	}
	t, err := tracing.Open(ctx, tracing.Options{
		Endpoint: cfg.Tracing.Endpoint, OneIn: cfg.Tracing.OneIn, Instance: instanceID(cfg), Version: version.Version(),
		Failed: tracingFailed(log),
	})
	if err != nil {
		log.Error("messages are not traced", "error", err)
		return nil
	}
	return t
}

// tracingFailed logs that spans cannot be sent, at most once a minute.
func tracingFailed(log *slog.Logger) func(error) {
	last := make(chan time.Time, 1)
	last <- time.Time{}
	return func(err error) {
		at := <-last
		if now := time.Now(); now.Sub(at) > time.Minute {
			at = now
			log.Warn("spans are lost: they cannot be sent to tracing.endpoint", "error", err)
		}
		last <- at
	}
}
