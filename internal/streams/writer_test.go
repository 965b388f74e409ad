package streams_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

func TestWriterStores(t *testing.T) {
	t.Parallel()
	f := setup(t, nil).connected()
	f.append("a1")
	f.flush()
	f.checkTold("a1 stored")
	f.checkLog("0:a1")
}

// TestWriterForms: what waits while the pace is kept goes in one entry, what
// comes after a pause goes at once.
func TestWriterForms(t *testing.T) {
	t.Parallel()
	f := setup(t, nil).connected()
	begin := f.clock.Now()
	f.append("a1")
	f.awaitSends(1)
	f.append("a2", "b2")
	f.clock.AwaitTimer(t, 2*time.Millisecond)
	f.append("c2")
	f.clock.Advance(time.Millisecond)
	f.append("d2")
	if n := len(f.recorder.all()); n != 1 {
		t.Fatalf("%d entries went within 1 ms", n)
	}
	f.clock.AwaitTimer(t, time.Millisecond)
	f.clock.Advance(time.Millisecond)
	f.flush()
	f.clock.Advance(time.Second)
	f.append("a3")
	f.flush()
	f.checkLog("0:a1", "0:a2 1:b2 2:c2 3:d2", "0:a3")
	for i, after := range []time.Duration{0, 2 * time.Millisecond, time.Second + 2*time.Millisecond} {
		if got := f.recorder.all()[i].at.Sub(begin); got != after {
			t.Errorf("entry %d went after %v, want %v", i+1, got, after)
		}
	}
}

// TestWriterLingers: the first envelope after a pause waits a moment, and what
// comes meanwhile goes with it. The moment is real time, and only its lower
// bound is looked at.
func TestWriterLingers(t *testing.T) {
	t.Parallel()
	const linger = 200 * time.Millisecond
	f := setup(t, func(o *streams.WriterOptions[send]) { o.Linger = linger }).connected()
	begin := time.Now()
	f.append("a1", "b1")
	f.awaitSends(1)
	if waited := time.Since(begin); waited < linger {
		t.Errorf("the first entry went after %v", waited)
	}
	f.flush()
	f.checkLog("0:a1 1:b1")
}

// TestWriterBoundsEntries: by count, and by bytes unless it is a single
// envelope.
func TestWriterBoundsEntries(t *testing.T) {
	t.Parallel()
	f := setupAway(t, nil)
	const small = 2500
	for range small {
		f.append("s")
	}
	half, large := "h"+strings.Repeat("x", streams.MaxEntryBytes/2-20), "l"+strings.Repeat("x", streams.MaxEnvelopeBytes-1)
	f.append(half, half, half, large, half, "end")
	f.m.Refuse(false)
	f.letIn()
	f.flush()
	count := 0
	for _, e := range f.m.Entries(0) {
		list, _, damaged := decode(e.Data)
		count += len(list)
		if damaged || len(list) > streams.MaxEnvelopes || (len(list) > 1 && len(e.Data) > streams.MaxEntryBytes) {
			t.Errorf("an entry has %d envelopes, %d bytes, damaged %v", len(list), len(e.Data), damaged)
		}
	}
	if count != small+6 {
		t.Errorf("%d envelopes are stored, want %d", count, small+6)
	}
	if n := len(f.m.Entries(0)); n > 7 {
		t.Errorf("they are stored in %d entries, 7 will do", n)
	}
}

func TestWriterBoundsUnconfirmed(t *testing.T) {
	t.Parallel()
	f := setup(t, nil).connected()
	f.m.HoldConfirms(true)
	for i, s := range []string{"a1", "a2", "a3", "a4"} {
		f.entry(i+1, s)
	}
	f.clock.Advance(time.Second)
	f.append("a5", "a6")
	f.m.HoldConfirms(false)
	f.flush()
	f.checkLog("0:a1", "0:a2", "0:a3", "0:a4", "0:a5 1:a6")
	f.checkTold("a1 a2 a3 a4 a5 a6 stored")
	if f.recorder.most != 4 {
		t.Errorf("%d entries were unconfirmed at a time, want 4", f.recorder.most)
	}
}

// TestWriterResendsSuffixP2: after a reconnect the whole unconfirmed suffix
// goes again, in order, under the same ids, byte for byte.
func TestWriterResendsSuffixP2(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} { // the first copies, or their confirms
		f := setup(t, nil).connected()
		f.entry(1, "a1")
		f.flush()
		if lost {
			f.m.Stall(true)
		}
		f.m.HoldConfirms(true)
		f.whole(2, "a2", "b2", "c2")
		f.entry(3, "a3")
		f.append("b4")
		f.m.Drop()
		f.m.Stall(false)
		f.comeBack()
		f.awaitSends(5)
		f.m.HoldConfirms(false)
		f.flush()
		sends := f.recorder.all()
		var ids []uint64
		for _, s := range sends {
			ids = append(ids, s.id)
		}
		if want := []uint64{1, 2, 3, 2, 3, 4}; !equal(ids, want) {
			t.Fatalf("sent %d, want %d", ids, want)
		}
		if sends[1].data != sends[3].data || sends[2].data != sends[4].data {
			t.Error("the resent entries differ")
		}
		f.checkLog("0:a1", "0:a2 1:b2 2:c2", "0:a3", "0:b4")
		f.checkTold("a1 a2 b2 c2 a3 b4 stored")
	}
}

func equal[T comparable](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// TestWriterNameUsedP1: somebody else stores under our name while we are away.
func TestWriterNameUsedP1(t *testing.T) {
	t.Parallel()
	f := setup(t, nil).connected()
	f.m.HoldConfirms(true)
	f.entry(1, "a1")
	f.m.HoldConfirms(false)
	f.flush()
	f.m.HoldConfirms(true)
	f.entry(2, "a2")
	eventually(t, "a2 to be stored", func() bool { return len(f.m.Entries(0)) == 2 })
	f.m.Refuse(true)
	f.m.Drop()
	eventually(t, "the loss of the connection", func() bool { return !f.Connected() })
	f.append("a3")

	f.m.Refuse(false)
	thief, err := f.m.Driver().OpenProducer(context.Background(), 0, "writer", func(uint64) {})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = thief.Close() }()
	if err := thief.Send(9, encode("stolen")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the other's entry", func() bool { return len(f.m.Entries(0)) == 3 })
	f.clock.AdvanceUntil(t, longestPause, "the end", func() bool { return f.Err() != nil })
	f.flush()
	f.checkTold("a1 stored, a2 unknown, a3 not stored")
	checkError(t, "Err", f.Err(), streams.ErrNameUsed)
	checkError(t, "Append", f.Append([]byte("a4"), "a4"), streams.ErrNameUsed)
}

// TestWriterRemovesP5: pending envelopes are dropped, those in formed entries
// replaced before a resend.
func TestWriterRemovesP5(t *testing.T) {
	t.Parallel()
	ofA := func(s *send) bool { return (*s)[0] == 'a' }

	t.Run("first copy lost", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil).connected()
		f.entry(1, "x1")
		f.flush()
		f.m.Stall(true)
		f.whole(2, "a1", "b1", "a2")
		f.m.Refuse(true)
		f.m.Drop()
		eventually(t, "the loss of the connection", func() bool { return !f.Connected() })
		f.append("a3", "b2", "a4")
		if n := len(f.Remove(ofA)); n != 2 {
			t.Errorf("%d pending were removed, want 2", n)
		}
		f.m.Stall(false)
		f.m.Refuse(false)
		f.letIn()
		f.flush()
		f.checkLog("0:x1", "1:b1", "0:b2")
		f.checkTold("x1 stored, a1 a2 unknown, b1 b2 stored")
		if n := len(f.Remove(ofA)); n != 0 {
			t.Errorf("%d were removed when nothing was left", n)
		}
	})
	t.Run("first copy stored, confirm lost", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil).connected()
		f.entry(1, "x1")
		f.flush()
		f.m.HoldConfirms(true)
		f.whole(2, "a1", "b1", "c1")
		eventually(t, "the first copy", func() bool { return len(f.m.Entries(0)) == 2 })
		f.Remove(ofA)
		f.reconnect()
		f.awaitSends(3)
		f.reconnect() // a second resend is the same as the first
		sends := f.awaitSends(4)
		f.m.HoldConfirms(false)
		f.flush()
		if sends[2].data == sends[1].data || sends[3].data != sends[2].data {
			t.Error("the first resend has the old envelope, or the second differs from it")
		}
		f.checkLog("0:x1", "0:a1 1:b1 2:c1")
		f.checkTold("x1 stored, a1 unknown, b1 c1 stored")
	})
	t.Run("found out before an entry is sent", func(t *testing.T) {
		t.Parallel()
		var lost atomic.Bool
		f := setup(t, func(o *streams.WriterOptions[send]) {
			o.Voided = func() func(*send) bool {
				if !lost.Load() {
					return nil
				}
				return ofA
			}
		}).connected()
		f.entry(1, "a1")
		f.flush()
		lost.Store(true)
		f.whole(2, "a2", "b1", "a3")
		f.flush()
		f.checkLog("0:a1", "1:b1")
		f.checkTold("a1 stored, a2 a3 unknown, b1 stored")
	})
	t.Run("without a resend", func(t *testing.T) {
		t.Parallel()
		f := setup(t, nil).connected()
		f.m.HoldConfirms(true)
		f.entry(1, "a1")
		f.Remove(ofA)
		f.m.HoldConfirms(false)
		f.flush()
		f.checkLog("0:a1")
		f.checkTold("a1 stored")
	})
	t.Run("all that a flush waits for", func(t *testing.T) {
		t.Parallel()
		f := setupAway(t, nil)
		f.append("a1", "a2")
		flushed := make(chan struct{})
		go func() {
			defer close(flushed)
			f.flush()
		}()
		if n := len(f.Remove(ofA)); n != 2 {
			t.Errorf("%d pending were removed, want 2", n)
		}
		<-flushed
	})
}

func TestWriterFull(t *testing.T) {
	t.Parallel()
	f := setup(t, func(o *streams.WriterOptions[send]) { o.MaxPendingBytes = 1000 }).connected()
	f.m.HoldConfirms(true)
	large := "a" + strings.Repeat("x", 499)
	f.append(large)
	f.awaitSends(1)
	f.append("b1")
	checkError(t, "more than the bound", f.Append([]byte(large), send(large)), streams.ErrFull)
	f.append("b2") // a small one still fits
	f.clock.Advance(time.Second)
	f.m.HoldConfirms(false)
	f.flush()
	for range 100 { // nothing leaks
		f.clock.Advance(time.Second)
		f.append(large)
		f.flush()
	}
	if n := len(f.tellings()); n != 103 {
		t.Errorf("%d outcomes, want 103", n)
	}
	checkError(t, "an empty envelope", f.Append(nil, "x"), streams.ErrEmpty)
	checkError(t, "a large envelope", f.Append(make([]byte, streams.MaxEnvelopeBytes+1), "x"), streams.ErrTooLarge)
}

// TestWriterSettledCallsBack: Settled may append and remove.
func TestWriterSettledCallsBack(t *testing.T) {
	t.Parallel()
	var f *fixture
	var once sync.Once
	ready := make(chan struct{})
	f = setup(t, func(o *streams.WriterOptions[send]) {
		note := o.Settled
		o.Settled = func(items []send, outcome streams.Outcome) {
			note(items, outcome)
			<-ready
			once.Do(func() {
				if err := f.Append([]byte("b1"), "b1"); err != nil {
					t.Errorf("appending in Settled: %v", err)
				}
				f.Remove(func(s *send) bool { return *s == "x" })
			})
		}
	})
	close(ready)
	f.connected()
	f.append("a1")
	eventually(t, "a1", func() bool { return len(f.tellings()) > 0 })
	f.clock.AdvanceUntil(t, 2*time.Millisecond, "b1", func() bool { return len(f.tellings()) == 2 })
	f.checkTold("a1 b1 stored")
}

func TestWriterFlush(t *testing.T) {
	t.Parallel()
	f := setup(t, nil).connected()
	f.m.HoldConfirms(true)
	f.entry(1, "a1")
	over, cancel := context.WithCancel(context.Background())
	cancel()
	checkError(t, "a flush whose context is over", f.Flush(over), context.Canceled)
	flushed := make(chan error, 1)
	go func() { flushed <- f.Flush(context.Background()) }()
	f.m.HoldConfirms(false)
	if err := <-flushed; err != nil {
		t.Error(err)
	}
	f.checkTold("a1 stored")
}

// TestWriterCloses: what could not be stored in time is told what is known of
// it.
func TestWriterCloses(t *testing.T) {
	t.Parallel()
	f := setup(t, func(o *streams.WriterOptions[send]) { o.MaxUnconfirmed = 1 }).connected()
	f.m.HoldConfirms(true)
	f.entry(1, "a1")
	f.append("a2", "c1")
	over, cancel := context.WithCancel(context.Background())
	cancel()
	var closing sync.WaitGroup
	var firsts sync.Map
	for i := range 3 {
		closing.Go(func() {
			err := f.Close(over)
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("closing: %v", err)
			}
			firsts.Store(i, err)
		})
	}
	closing.Wait()
	if err := f.Close(context.Background()); err != nil {
		t.Errorf("closing again: %v", err)
	}
	f.checkTold("a1 unknown, a2 c1 not stored")
	checkError(t, "appending", f.Append([]byte("x"), "x"), streams.ErrClosed)
	f.flush()
	f.Reset()
	if n := len(f.Remove(func(*send) bool { return true })); n != 0 || f.Connected() {
		t.Errorf("a closed writer is connected or removes %d", n)
	}
	f.m.HoldConfirms(false)
	if got := f.tellings(); len(got) > 0 {
		t.Errorf("after Close %q was told", got)
	}
}
