package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	ossignal "os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are what the flags say.
type options struct {
	full                        bool
	rounds                      int
	warmup, throughput, latency time.Duration
	rate, window, payload       int
	waiting, foreign            int // messages
	strangers, mute             int // sessions
	churn                       int // identities
	systems, cells              []string
	binary, profile, json       string
	role                        string
}

// wants reports whether a name was chosen; no choice is all.
func (o *options) wants(chosen []string, name string) bool {
	return len(chosen) == 0 || slices.Contains(chosen, name)
}

func parseFlags(args []string) (options, error) {
	var o options
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.BoolVar(&o.full, "full", false, "measure long enough for a p99: about a quarter of an hour")
	set.IntVar(&o.rounds, "rounds", 0, "how often each system takes its turn (default 2, with -full 3)")
	set.DurationVar(&o.throughput, "throughput", 0, "how long a saturated run is measured (default 2s, with -full 5s)")
	set.DurationVar(&o.latency, "latency", 0, "how long a run at a rate is measured (default 4s, with -full 26s)")
	set.DurationVar(&o.warmup, "warmup", 500*time.Millisecond, "what is not measured at the start of a run")
	set.IntVar(&o.rate, "rate", 200, "messages per second in runs at a rate")
	set.IntVar(&o.window, "window", 1000, "sends of a pair that may be without a receipt")
	set.IntVar(&o.payload, "payload", 256, "bytes of a payload")
	systems := set.String("systems", "", "only these, of relay,raw,gateway,embedded")
	set.IntVar(&o.waiting, "waiting", 100_000, "messages that wait for an agent that comes back")
	set.IntVar(&o.foreign, "foreign", 0, "messages of others that lie in the log when new identities come (default 200000, with -full 3600000)")
	set.IntVar(&o.strangers, "strangers", 200, "new identities that come at once")
	set.IntVar(&o.mute, "mute", 0, "sessions that do not read (default 100, with -full 500)")
	set.IntVar(&o.churn, "churn", 20_000, "identities that come and go")
	cells := set.String("cells", "", "only these, of "+strings.Join(every, ",")+" (default "+strings.Join(usual, ",")+", with -full all)")
	set.StringVar(&o.binary, "gateway", "", "a gateway binary to measure, instead of building one")
	set.StringVar(&o.profile, "cpuprofile-gateway", "", "run the gateways in children of this program and write their CPU and allocation profiles to this directory")
	set.StringVar(&o.json, "json", "", "also write the report to this file, as JSON")
	set.StringVar(&o.role, "role", "", "for the program's own children")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if set.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", set.Arg(0))
	}
	pick := func(quick, full time.Duration) time.Duration {
		if o.full {
			return full
		}
		return quick
	}
	if o.rounds == 0 {
		o.rounds = int(pick(2, 3))
	}
	if o.throughput == 0 {
		o.throughput = pick(2*time.Second, 5*time.Second)
	}
	if o.latency == 0 {
		o.latency = pick(4*time.Second, 26*time.Second)
	}
	if o.foreign == 0 {
		o.foreign = int(pick(200_000, 3_600_000))
	}
	if o.mute == 0 {
		o.mute = int(pick(100, 500))
	}
	for _, n := range []int{o.rounds, o.rate, o.window, o.payload, o.waiting, o.foreign, o.strangers, o.mute, o.churn} {
		if n < 1 {
			return o, errors.New("rounds, rate, window, payload and numbers of messages, sessions and identities are at least 1")
		}
	}
	var err error
	if o.systems, err = list(*systems, nameRelay, nameRaw, nameRabbitMQ, nameEmbedded); err != nil {
		return o, err
	}
	o.cells, err = list(*cells, every...)
	return o, err
}

// list reads a list of names with commas between them.
func list(text string, known ...string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	names := strings.Split(text, ",")
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("%q is none of %s", name, strings.Join(known, ", "))
		}
	}
	return names, nil
}

func main() {
	o, err := parseFlags(os.Args[1:])
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = dispatch(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func dispatch(o options) error {
	if o.role != "" {
		return takeRole(o.role)
	}
	ctx, cancel := ossignal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	return bench(ctx, o)
}

// clientGC spares the clients some of the cores; what is measured has the
// settings that it comes with.
const clientGC = 400

func bench(ctx context.Context, o options) (err error) {
	debug.SetGCPercent(clientGC)
	if o.profile != "" {
		if err := os.MkdirAll(o.profile, 0o755); err != nil {
			return err
		}
	}
	cells := plan(o)
	if len(cells) == 0 {
		return errors.New("nothing to measure: no cell has one of these systems")
	}
	r := report{Facts: gather(os.Args[1:])}
	fmt.Fprintf(os.Stderr, "starting broker, database, Redis, gateways and relay; then measuring for about %s\n", duration(cells, o.rounds).Round(5*time.Second))
	s, err := openSite(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, c := range cells {
		result, err := s.measure(ctx, c, o.rounds, os.Stderr)
		if err != nil {
			return err
		}
		r.Results = append(r.Results, result)
	}
	r.Facts.LoadAfter = loadAverage()
	fmt.Print("\n", r.text())
	if o.json != "" {
		b, err := json.MarshalIndent(struct {
			Facts facts
			Rows  []row
		}{r.Facts, r.rows()}, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(o.json, b, 0o644); err != nil {
			return err
		}
	}
	if r.faulty() {
		return errors.New("messages were lost, repeated, overtaken or refused: see the report")
	}
	return nil
}
