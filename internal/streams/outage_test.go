package streams_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// TestWriterTimesOutP4: an entry fails as a whole and stays; what follows one
// of its items fails too; others are left alone; a late confirm is told.
func TestWriterTimesOutP4(t *testing.T) {
	t.Parallel()
	for _, withKey := range []bool{true, false} {
		f := setupAway(t, func(o *streams.WriterOptions[send]) {
			o.MaxUnconfirmed = 2
			if !withKey {
				o.FollowsKey = nil
			}
		})
		f.m.HoldConfirms(true)
		f.appendWhole("a1", "b1", "a2")
		f.clock.Advance(timeout / 2)
		f.appendWhole("c1", "b2", "d1")
		f.append("d2", "a3", "c2", "b3", "e1")
		f.m.Refuse(false)
		f.letIn()
		f.clock.AdvanceUntil(t, 2*time.Millisecond, "two entries", func() bool { return len(f.recorder.all()) == 2 })
		if got := f.tellings(); len(got) > 0 {
			t.Fatalf("after half the time %q was told", got)
		}
		f.clock.Advance(timeout / 2)
		f.checkTold("a1 b1 a2 b2 unknown, a3 b3 not stored")

		f.reconnect()
		f.m.HoldConfirms(false)
		f.flush()
		f.checkTold("a1 b1 a2 c1 b2 d1 d2 c2 e1 stored")
		f.checkLog("0:a1 1:b1 2:a2", "0:c1 1:b2 2:d1", "0:d2 1:c2 2:e1")
	}
}

// TestWriterOrderOnlyP4: without Follows nobody else fails.
func TestWriterOrderOnlyP4(t *testing.T) {
	t.Parallel()
	f := setup(t, func(o *streams.WriterOptions[send]) {
		o.MaxUnconfirmed, o.Follows, o.FollowsKey = 1, nil, nil
	}).connected()
	f.m.HoldConfirms(true)
	f.entry(1, "a1")
	f.clock.Advance(timeout / 2)
	f.append("a2")
	f.clock.Advance(timeout / 2)
	f.checkTold("a1 unknown")
	f.m.HoldConfirms(false)
	f.comeBack()
	f.flush()
	f.checkTold("a1 a2 stored")
}

// TestWriterLateSendsAfterTimeout: what is appended after the failure was told
// is a new try and stays.
func TestWriterLateSendsAfterTimeout(t *testing.T) {
	t.Parallel()
	f := setup(t, nil).connected()
	f.m.HoldConfirms(true)
	f.entry(1, "a1")
	f.m.Refuse(true)
	f.clock.Advance(timeout)
	f.checkTold("a1 unknown")
	eventually(t, "the loss of the connection", func() bool { return !f.Connected() })
	f.append("a2")
	f.clock.Advance(timeout / 2)
	f.m.Refuse(false)
	f.m.HoldConfirms(false)
	f.letIn()
	f.flush()
	f.checkTold("a1 a2 stored")
	f.checkLog("0:a1", "0:a2")
}

// TestWriterUnreachable: pending items are answered in time, and when the log
// has been away for longer, appending fails at once.
func TestWriterUnreachable(t *testing.T) {
	t.Parallel()
	f := setupAway(t, nil)
	f.appendWhole("a1", "b1", "e1")
	f.clock.Advance(timeout / 2)
	f.append("b2", "c1")
	f.clock.Advance(timeout/2 - time.Second)
	if got := f.tellings(); len(got) > 0 {
		t.Fatalf("too early %q was told", got)
	}
	// The janitor may have read the clock before its last step.
	f.clock.AdvanceUntil(t, time.Second, "the answers", func() bool { return len(f.tellings()) > 0 })
	f.checkTold("a1 b1 e1 b2 not stored")
	f.clock.Advance(time.Second)
	checkError(t, "appending", f.Append([]byte("x"), "x"), streams.ErrUnavailable)
	if f.Err() != nil {
		t.Errorf("an outage is taken for the end: %v", f.Err())
	}
	f.m.Refuse(false)
	f.letIn()
	f.flush()
	f.append("d1")
	f.flush()
	f.checkTold("c1 d1 stored")
}

// TestWriterFindsDeadConnection: the peer takes entries and is silent.
func TestWriterFindsDeadConnection(t *testing.T) {
	t.Parallel()
	f := setup(t, nil).connected()
	f.m.Stall(true)
	f.entry(1, "a1")
	f.clock.Advance(timeout - time.Second)
	if !f.Connected() {
		t.Error("the connection is given up too early")
	}
	f.clock.AwaitTimer(t, time.Second)
	f.clock.Advance(time.Second)
	f.checkTold("a1 unknown")
	eventually(t, "the end of the connection", func() bool { return !f.Connected() })
	f.m.Stall(false)
	f.letIn()
	f.flush()
	f.checkTold("a1 stored")
	f.checkLog("0:a1")
}

// TestWriterLeavesHungDriverBehind: closing, sending and opening block for
// good; the writer goes on with a new connection, and ends.
func TestWriterLeavesHungDriverBehind(t *testing.T) {
	t.Parallel()
	f := setup(t, nil).connected()
	f.entry(1, "a1")
	f.flush()
	f.appendWhole("a2", "b2", "c2")
	f.clock.AwaitTimer(t, 2*time.Millisecond)
	f.m.Hang(true)
	f.clock.Advance(2 * time.Millisecond)
	f.awaitSends(2) // does not return
	f.clock.Advance(timeout)
	f.checkTold("a1 stored, a2 b2 c2 unknown")
	eventually(t, "the end of the connection", func() bool { return !f.Connected() })
	f.Remove(func(s *send) bool { return *s == "b2" })
	begin := f.clock.Now()
	f.clock.AdvanceUntil(t, timeout, "attempts to open that hang", func() bool { return f.clock.Now().Sub(begin) > 2*timeout })
	f.m.Hang(false)
	f.clock.AdvanceUntil(t, timeout, "the connection", f.Connected)
	f.checkTold("a2 c2 stored")
	f.checkLog("0:a1", "0:a2 2:c2")
}

func TestWriterClosesOnHungDriver(t *testing.T) {
	t.Parallel()
	f := setup(t, nil).connected()
	f.m.Hang(true)
	defer f.m.Hang(false)
	f.entry(1, "a1")
	f.append("a2")
	over, cancel := context.WithCancel(context.Background())
	cancel()
	closed := make(chan error, 1)
	go func() { closed <- f.Close(over) }()
	eventually(t, "the end of the connection", func() bool { return !f.Connected() })
	f.clock.AdvanceUntil(t, time.Second, "Close", func() bool { return len(closed) > 0 })
	checkError(t, "closing", <-closed, context.Canceled)
	f.checkTold("a1 unknown, a2 not stored")
}

// TestWriterFailsFast: a lot fails at once, and is answered in one sweep that
// compares each item with few.
func TestWriterFailsFast(t *testing.T) {
	t.Parallel()
	compared := 0
	f := setup(t, func(o *streams.WriterOptions[send]) {
		o.MaxUnconfirmed = 1
		o.Follows = func(failed, later *send) bool {
			compared++
			return *failed == *later
		}
		o.FollowsKey = func(s *send) uint64 { return uint64((*s)[1])<<8 | uint64((*s)[2]) }
	}).connected()
	f.m.HoldConfirms(true)
	f.entry(1, "xxx")
	var texts []string
	for i := range 900 {
		texts = append(texts, fmt.Sprintf("a%c%c", 'A'+i/30, 'A'+i%30))
	}
	f.append(texts...)
	f.m.HoldConfirms(false)
	f.flush()
	f.m.HoldConfirms(true)
	f.clock.Advance(time.Second)
	f.append("yyy")
	f.awaitSends(3)
	for range 5 {
		f.append(texts...)
	}
	f.clock.Advance(timeout)
	eventually(t, "all outcomes", func() bool { return len(f.tellings()) == 902+4500 })
	if compared > 20_000 {
		t.Errorf("%d comparisons", compared)
	}
}

// TestWriterAnswersEachInTime: while the log is away, items that wait in one
// batch do not all wait for, or fail with, the first.
func TestWriterAnswersEachInTime(t *testing.T) {
	t.Parallel()
	f := setupAway(t, nil)
	begin := f.clock.Now()
	passed := func(d time.Duration) func() bool {
		return func() bool { return f.clock.Now().Sub(begin) >= d }
	}
	f.append("a1")
	f.clock.AdvanceUntil(t, timeout, "some time", passed(timeout/2))
	f.append("b1")
	f.clock.AdvanceUntil(t, timeout, "the first to time out", func() bool { return len(f.tellings()) > 0 })
	if took := f.clock.Now().Sub(begin); took < timeout || took > timeout+time.Second {
		t.Errorf("the first was told after %v, want %v", took, timeout)
	}
	f.checkTold("a1 not stored")
	f.clock.AdvanceUntil(t, timeout, "the second to time out", func() bool { return len(f.tellings()) > 0 })
	if took := f.clock.Now().Sub(begin); took < timeout*3/2 {
		t.Errorf("the second was told after %v, want %v", took, timeout*3/2)
	}
	f.checkTold("b1 not stored")
}
