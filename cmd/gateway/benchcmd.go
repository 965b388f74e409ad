package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/load"
)

type benchCmd struct {
	Addr      string `placeholder:"HOST:PORT" help:"The gateway's gRPC address; of several with commas between them, the first that serves (default: AETHER_ADDR, AETHER_GRPC_ADDR, the data directory's gateway, 127.0.0.1:50051)."`
	Token     string `placeholder:"JWT" help:"A credential for the agents ag::W::bench::* (default: AETHER_TOKEN, else one is made with the data directory's key)."`
	Workspace string `default:"bench" placeholder:"W" help:"The workspace; it must exist, unless naming it creates it (default: bench)."`
	Name      string `default:"bench" placeholder:"NAME" help:"What its agents are called; of two that run at once each needs a name of its own (default: bench)."`
	Pairs     int    `default:"1" placeholder:"N" help:"How many agents send, each to one of its own (default: 1)."`
	Size      int    `default:"256" placeholder:"BYTES" help:"The size of a message (default: 256)."`
	Rate      int    `placeholder:"N" help:"Messages per second and pair (default: as many as get through)."`
	Window    int    `default:"256" placeholder:"N" help:"How many messages of a pair may be without a receipt (default: 256)."`
	Duration  string `default:"10s" help:"How long is measured (default: 10s)."`
	Warmup    string `default:"1s" placeholder:"DURATION" help:"How long it runs before (default: 1s)."`
	Timeout   string `placeholder:"DURATION" help:"How long to wait for the gateway (default: 5s)."`
	Output    string `default:"text" enum:"text,json" help:"text, or json."`
	tlsFlags
	keyFlags
}

// Help says what the figures are.
func (*benchCmd) Help() string {
	return "It stores what it sends, as any message is stored: do not run it where that is in the way. " +
		"A message counts when it is stored, receipted and delivered. One way is from the call that sends to the receiver's handler, " +
		"receipt until the answer that it is stored; without --rate both are mostly the time behind the other messages of the window. " +
		"It exits with 1 if messages were lost, overtaken, or refused other than by a limit."
}

// Run measures a running gateway.
func (c *benchCmd) Run(p *program) error {
	o := load.Options{Pairs: c.Pairs, Name: c.Name, Payload: c.Size, Window: c.Window, Rate: c.Rate}
	for flag, x := range map[string]struct {
		text string
		to   *time.Duration
		min  time.Duration
	}{"--duration": {c.Duration, &o.Duration, 1}, "--warmup": {c.Warmup, &o.Warmup, 0}} {
		d, err := config.ParseDuration(x.text)
		if err != nil || d < x.min {
			return usagef("%s: %q is no duration of some length", flag, x.text)
		}
		*x.to = d
	}
	if o.Warmup == 0 {
		o.Warmup = -1 // none, where 0 is the default
	}
	for _, x := range []struct {
		flag            string
		value, min, max int
	}{
		{"--pairs", c.Pairs, 1, load.MaxPairs},
		{"--size", c.Size, load.MinPayload, load.MaxPayload},
		{"--rate", c.Rate, 0, load.MaxRate},
		{"--window", c.Window, 1, load.MaxWindow},
	} {
		if x.value < x.min || x.value > x.max {
			return usagef("%s must be in %d..%d", x.flag, x.min, x.max)
		}
	}
	if err := address.ValidSegment(c.Name); err != nil {
		return usagef("--name: %v", err)
	}
	if err := address.ValidWorkspace(c.Workspace); err != nil {
		return usagef("--workspace: %v", err)
	}
	ctx, cancel := p.untilSignal()
	defer cancel()
	o.Connect = func(ctx context.Context, specifier string, o client.Options) (*client.Client, error) {
		as := clientFlags{
			Addr: c.Addr, Token: c.Token, As: "ag::" + c.Workspace + "::bench::" + specifier, Timeout: c.Timeout, tlsFlags: c.tlsFlags, keyFlags: c.keyFlags,
		}
		connected, _, err := as.connect(ctx, p, "", o)
		return connected, err
	}
	r, err := load.Run(ctx, o)
	switch {
	case errors.Is(err, errInterrupted):
		return nil
	case err != nil:
		return err
	}
	if err := c.print(p, &r); err != nil {
		return err
	}
	if r.Faulty() {
		return silentError{}
	}
	return nil
}

func (c *benchCmd) print(p *program, r *load.Result) error {
	if c.Output == "json" {
		delays := func(d load.Delays) map[string]any {
			return map[string]any{"samples": d.Samples, "p50_us": d.P50.Microseconds(), "p99_us": d.P99.Microseconds(), "max_us": d.Max.Microseconds()}
		}
		return json.NewEncoder(p.stdout).Encode(map[string]any{
			"pairs": c.Pairs, "size": c.Size, "rate": c.Rate, "window": c.Window, "seconds": r.Elapsed.Seconds(), "messages": r.Messages,
			"messages_per_second": r.PerSecond(), "one_way": delays(r.OneWay), "receipt": delays(r.Receipt),
			"limited": r.Limited, "refused": r.Refused, "refusal": r.Refusal, "lost": r.Lost, "overtaken": r.Overtaken,
		})
	}
	pairs := "1 pair"
	if c.Pairs > 1 {
		pairs = fmt.Sprintf("%d pairs", c.Pairs)
	}
	fmt.Fprintf(p.stdout, "throughput  %.0f msg/s: %d messages of %d bytes in %s, %s\n", r.PerSecond(), r.Messages, c.Size, r.Elapsed.Round(time.Millisecond), pairs)
	for _, x := range []struct {
		name string
		d    load.Delays
	}{{"one way", r.OneWay}, {"receipt", r.Receipt}} {
		fmt.Fprintf(p.stdout, "%-10s  p50 %s, p99 %s, max %s\n", x.name, fine(x.d.P50), fine(x.d.P99), fine(x.d.Max))
	}
	fmt.Fprintf(p.stdout, "faults      lost %d, overtaken %d, refused %d\n", r.Lost, r.Overtaken, r.Refused)
	if r.Limited > 0 {
		fmt.Fprintf(p.stdout, "limited     %d sends: what was measured is a limit of the deployment\n", r.Limited)
	}
	if r.Refusal != "" {
		fmt.Fprintf(p.stderr, "the last refusal: %s\n", printable(r.Refusal))
	}
	return nil
}

// fine is a duration with three digits or so.
func fine(d time.Duration) string {
	switch {
	case d >= time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d >= 10*time.Millisecond:
		return d.Round(100 * time.Microsecond).String()
	}
	return d.Round(time.Microsecond).String()
}
