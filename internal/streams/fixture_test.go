package streams_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/streamstest"
)

const patience = 30 * time.Second

// send is a text whose first letter is its sender.
type send string

func follows(failed, later *send) bool { return (*failed)[0] == (*later)[0] }

func senderOf(s *send) uint64 { return uint64((*s)[0]) }

// eventually waits until cond holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	giveUp := time.After(patience)
	for !cond() {
		select {
		case <-ticker.C:
		case <-giveUp:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// recorder is a driver that notes what is sent.
type recorder struct {
	streams.Driver
	clock streams.Clock

	mu          sync.Mutex
	sends       []sentEntry
	unconfirmed map[uint64]bool
	most        int // unconfirmed at a time
}

type sentEntry struct {
	id   uint64
	data string
	at   time.Time
}

func (r *recorder) OpenProducer(ctx context.Context, partition int, name string, confirmed func(uint64)) (streams.Producer, error) {
	p, err := r.Driver.OpenProducer(ctx, partition, name, func(id uint64) {
		r.mu.Lock()
		delete(r.unconfirmed, id)
		r.mu.Unlock()
		confirmed(id)
	})
	if err != nil {
		return nil, err
	}
	return recordedProducer{p, r}, nil
}

type recordedProducer struct {
	streams.Producer
	r *recorder
}

func (p recordedProducer) Send(id uint64, entry []byte) error {
	p.r.mu.Lock()
	p.r.sends = append(p.r.sends, sentEntry{id, string(entry), p.r.clock.Now()})
	p.r.unconfirmed[id] = true
	p.r.most = max(p.r.most, len(p.r.unconfirmed))
	p.r.mu.Unlock()
	return p.Producer.Send(id, entry)
}

func (r *recorder) all() []sentEntry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.sends)
}

// fixture is a writer on a log in memory, with a clock that stands still.
type fixture struct {
	*streams.Writer[send]
	t        *testing.T
	m        *streamstest.Memory
	clock    *streamstest.Clock
	recorder *recorder

	mu   sync.Mutex
	told []string // "text outcome"
}

// timeout is the fixture's. Every other wait is much shorter, but the ticks of
// the janitor, a tenth of it.
const timeout = time.Minute

func setup(t *testing.T, change func(*streams.WriterOptions[send])) *fixture {
	t.Helper()
	return setupOn(t, streamstest.NewMemory(1), change)
}

// setupAway is setup with a log that refuses connections.
func setupAway(t *testing.T, change func(*streams.WriterOptions[send])) *fixture {
	t.Helper()
	m := streamstest.NewMemory(1)
	m.Refuse(true)
	return setupOn(t, m, change)
}

func setupOn(t *testing.T, m *streamstest.Memory, change func(*streams.WriterOptions[send])) *fixture {
	t.Helper()
	f := &fixture{t: t, m: m, clock: streamstest.NewClock()}
	f.recorder = &recorder{Driver: f.m.Driver(), clock: f.clock, unconfirmed: map[uint64]bool{}}
	o := streams.WriterOptions[send]{
		Driver: f.recorder, Name: "writer", Clock: f.clock, Timeout: timeout,
		Follows: follows, FollowsKey: senderOf,
		Settled: func(items []send, outcome streams.Outcome) {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, s := range items {
				f.told = append(f.told, string(s)+" "+outcome.String())
			}
		},
	}
	if change != nil {
		change(&o)
	}
	f.Writer = streams.NewWriter(o)
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		_ = f.Close(over)
	})
	return f
}

// connected waits for the connection.
func (f *fixture) connected() *fixture {
	f.t.Helper()
	eventually(f.t, "the connection", f.Connected)
	return f
}

// reconnect loses the connection, waits out the pause and connects again.
func (f *fixture) reconnect() {
	f.t.Helper()
	f.m.Drop()
	f.comeBack()
}

// comeBack waits out the pause after a lost connection.
func (f *fixture) comeBack() {
	f.t.Helper()
	eventually(f.t, "the loss of the connection", func() bool { return !f.Connected() })
	f.letIn()
}

// letIn waits for the connection of a writer that had none: an attempt may be
// on its way already.
func (f *fixture) letIn() {
	f.t.Helper()
	f.clock.AdvanceUntil(f.t, longestPause, "the connection", f.Connected)
}

// longestPause is that between attempts to connect.
const longestPause = 3 * time.Second

// append appends texts, all of which must be accepted.
func (f *fixture) append(texts ...string) {
	f.t.Helper()
	for _, s := range texts {
		if err := f.Append([]byte(s), send(s)); err != nil {
			f.t.Fatalf("appending %s: %v", s, err)
		}
	}
}

// entry appends a text after a pause and waits until it was sent, as the n-th
// Send.
func (f *fixture) entry(n int, text string) {
	f.t.Helper()
	f.clock.Advance(time.Second)
	f.append(text)
	f.awaitSends(n)
}

// appendWhole appends three texts that, as long as they are pending, fill an
// entry: the next one goes to another.
func (f *fixture) appendWhole(a, b, c string) {
	f.t.Helper()
	for _, s := range []string{a, b, c} {
		envelope := s + strings.Repeat(" ", streams.MaxEntryBytes/3-9-len(s))
		if err := f.Append([]byte(envelope), send(s)); err != nil {
			f.t.Fatalf("appending %s: %v", s, err)
		}
	}
}

// whole has three texts sent in one entry, as the n-th Send. The entry before
// it must have gone just now, so that it is the pace that they wait for.
func (f *fixture) whole(n int, a, b, c string) {
	f.t.Helper()
	f.appendWhole(a, b, c)
	f.clock.AdvanceUntil(f.t, 2*time.Millisecond, "the entry to go", func() bool { return len(f.recorder.all()) >= n })
}

func (f *fixture) awaitSends(n int) []sentEntry {
	f.t.Helper()
	eventually(f.t, fmt.Sprintf("%d sends", n), func() bool { return len(f.recorder.all()) >= n })
	return f.recorder.all()
}

func (f *fixture) tellings() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.told)
}

// checkTold waits until so many outcomes are told, since the last check, and
// compares them: "a1 b1 unknown, a2 not stored".
func (f *fixture) checkTold(want string) {
	f.t.Helper()
	var list []string
	for part := range strings.SplitSeq(want, ", ") {
		words := strings.Fields(part)
		outcome := words[len(words)-1]
		words = words[:len(words)-1]
		if outcome == "stored" && words[len(words)-1] == "not" {
			outcome, words = "not stored", words[:len(words)-1]
		}
		for _, s := range words {
			list = append(list, s+" "+outcome)
		}
	}
	eventually(f.t, want, func() bool { return len(f.tellings()) >= len(list) })
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Equal(f.told, list) {
		f.t.Errorf("told %q, want %q", f.told, list)
	}
	f.told = nil
}

// checkLog compares the stored entries: the envelopes as by decode, joined.
func (f *fixture) checkLog(want ...string) {
	f.t.Helper()
	var got []string
	for _, e := range f.m.Entries(0) {
		list, skipped, damaged := decode(e.Data)
		if skipped > 0 || damaged {
			f.t.Errorf("the entry at %d is damaged", e.Offset)
		}
		got = append(got, strings.Join(strings.Fields(strings.Join(list, " ")), " "))
	}
	if !slices.Equal(got, want) {
		f.t.Errorf("stored %q, want %q", got, want)
	}
}

// flush flushes while the clock goes on as the pace wants it.
func (f *fixture) flush() {
	f.t.Helper()
	done := make(chan error, 1)
	go func() { done <- f.Flush(context.Background()) }()
	f.clock.AdvanceUntil(f.t, 2*time.Millisecond, "a flush", func() bool { return len(done) > 0 })
	if err := <-done; err != nil {
		f.t.Fatalf("flushing: %v", err)
	}
}

func checkError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}
