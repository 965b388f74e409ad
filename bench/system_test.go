package main

import (
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// startRelay starts the relay in this process.
func startRelay(t *testing.T) *server {
	t.Helper()
	s := newRelay()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &server{
		title: "relay", target: target{addr: l.Addr().String(), codec: newCodec()},
		cpu: []process{{"all", os.Getpid}},
	}
}

func TestThroughput(t *testing.T) {
	t.Parallel()
	s := startRelay(t)
	l := load{Pairs: 3, Payload: 256, Window: 100, Unacked: 100, Warmup: 20 * time.Millisecond, Duration: time.Second}
	for range 2 { // the names of the first run are used again
		o, err := s.run(t.Context(), l)
		if err != nil {
			t.Fatal(err)
		}
		if o.Messages == 0 || o.Faults.any() || o.perSecond() <= 0 || len(o.OneWay) > 0 {
			t.Errorf("%d messages, faults: %v", o.Messages, o.Faults)
		}
	}
}

func TestLatency(t *testing.T) {
	t.Parallel()
	s := startRelay(t)
	l := load{Pairs: 1, Payload: 256, Window: 100, Unacked: 100, IDs: true, Rate: 500, Warmup: 20 * time.Millisecond, Duration: time.Second}
	o, err := s.run(t.Context(), l)
	if err != nil {
		t.Fatal(err)
	}
	if len(o.OneWay) == 0 || len(o.Receipt) == 0 || o.Faults.any() {
		t.Errorf("%d and %d samples, faults: %v", len(o.OneWay), len(o.Receipt), o.Faults)
	}
	for _, d := range o.OneWay {
		if d <= 0 || d > time.Minute {
			t.Fatalf("a message took %v", d)
		}
	}
}

// TestServerGone sees that a run ends with an error, not with figures, when
// the server goes away in it.
func TestServerGone(t *testing.T) {
	t.Parallel()
	s := newRelay()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	system := &server{title: "relay", target: target{addr: l.Addr().String(), codec: newCodec()}}
	system.measured = func(begin bool) error {
		if begin {
			s.Stop()
		}
		return nil
	}
	_, err = system.run(t.Context(), load{Pairs: 2, Payload: 64, Window: 10, Unacked: 10, Warmup: 10 * time.Millisecond, Duration: time.Minute})
	if err == nil {
		t.Error("no error")
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
}
