package streams_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// troubled waits until what says a reason with text, or, for "", none.
func troubled(t *testing.T, what string, trouble func() error, text string) {
	t.Helper()
	eventually(t, what+" to say "+text, func() bool {
		err := trouble()
		if text == "" || err == nil {
			return text == "" && err == nil
		}
		return strings.Contains(err.Error(), text)
	})
}

// A writer says why it cannot store, and does not count a connection through
// which nothing is confirmed for one that works.
func TestWriterSaysItsTrouble(t *testing.T) {
	t.Parallel()
	f := setupAway(t, nil)
	troubled(t, "a writer whose log refuses", f.Trouble, "refuse")
	f.m.Refuse(false)
	f.letIn()
	troubled(t, "a connected writer", f.Trouble, "")
	f.m.HoldConfirms(true)
	f.entry(1, "a1")
	if err := f.Trouble(); err != nil {
		t.Errorf("at once after a send: %v", err)
	}
	f.clock.Advance(3 * time.Second)
	troubled(t, "a writer without confirms", f.Trouble, "nothing has been confirmed for 3s")
	f.m.Refuse(true)
	f.Reset()
	troubled(t, "a writer that was cut", f.Trouble, "connection is gone")
	f.m.Refuse(false)
	f.letIn()
	troubled(t, "a writer that came back and has no confirm yet", f.Trouble, "nothing has been confirmed")
	f.m.HoldConfirms(false)
	f.reconnect()
	f.flush()
	troubled(t, "a writer whose entry is confirmed", f.Trouble, "")
}

func TestTailSaysItsTrouble(t *testing.T) {
	t.Parallel()
	f := setupTail(t, streams.First(), nil)
	troubled(t, "a tail", f.Trouble, "")
	f.m.Refuse(true)
	f.m.Drop()
	troubled(t, "a tail whose log is gone", f.Trouble, "connection is gone")
	f.clock.AdvanceUntil(t, time.Second, "an attempt", func() bool { return f.Trouble() != nil && strings.Contains(f.Trouble().Error(), "refuse") })
	f.m.Refuse(false)
	f.clock.AdvanceUntil(t, time.Second, "a connection", func() bool { return f.Trouble() == nil })
}
