package e2e

import (
	"slices"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// What counts as done for a client without acknowledgements depends on how it
// leaves: the rows of the table of delivery rule A. A stuck and killed one is
// [testAutoReaderKilled], a half-close [testTwoThousandWaitingAuto].
func testAutoEnds(t *testing.T, g *gateway) {
	type receiver struct {
		*peer
		sender *peer
		to     identity
		at     int
	}
	begin := func(t *testing.T) *receiver {
		ws := workspace(t)
		r := &receiver{to: agent(ws, "i", "s"), sender: connect(t, g, user(ws, "w", ws))}
		r.peer = connect(t, g, r.to, auto)
		return r
	}
	// more sends and reads five messages.
	more := func(t *testing.T, r *receiver) {
		t.Helper()
		sent := numbered("m", r.at+1, r.at+5)
		r.at += 5
		r.sender.stored(r.to.name, sent...)
		var got []*aetherv1.IncomingMessage
		for range sent {
			got = append(got, r.read())
		}
		wantTexts(t, got, sent)
	}
	again := func(t *testing.T, r *receiver, want []string) {
		t.Helper()
		next := reconnect(t, g, r.to, auto)
		r.sender.stored(r.to.name, "last")
		wantTexts(t, next.until("last"), want)
	}
	// Two seconds: the one of the rule, and one by which the gateway's clock
	// may be behind; and the heartbeats' own second to begin with.
	const pause = 5
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		r := begin(t)
		more(t, r)
		r.synced()
		r.beats(pause)
		begun := time.Now()
		more(t, r)
		r.cancel() // on a connection that lives on
		want := numbered("m", 6, 10)
		if time.Since(begun) > 900*time.Millisecond {
			// So slow a machine that they may count as done or not.
			next := reconnect(t, g, r.to, auto)
			r.sender.stored(r.to.name, "last")
			if got := texts(next.until("last")); len(got) > len(want) || !slices.Equal(got, want[len(want)-len(got):]) {
				t.Errorf("after a late cancel %q came", got)
			}
			return
		}
		again(t, r, want)
	})
	t.Run("cut", func(t *testing.T) {
		t.Parallel()
		r := begin(t)
		more(t, r)
		r.synced()
		r.beats(pause)
		more(t, r)
		r.cut()
		again(t, r, numbered("m", 1, 10))
	})
	t.Run("cut late", func(t *testing.T) {
		t.Parallel()
		r := begin(t)
		more(t, r)
		r.synced()
		r.beats(20 + pause) // the transport would have found it dead by now
		more(t, r)
		r.cut()
		again(t, r, numbered("m", 6, 10))
	})
}
