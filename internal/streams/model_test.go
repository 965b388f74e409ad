package streams_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/streamstest"
)

// TestWriterKeepsItsPromises lets everything happen in any order and checks
// what holds all the same: what is told Stored is stored once, what is told
// NotStored or removed while pending is not, nothing is stored twice, and each
// sender's envelopes are stored in their order.
func TestWriterKeepsItsPromises(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m, clock := streamstest.NewMemory(1), streamstest.NewClock()
		var mu sync.Mutex
		told := map[send]streams.Outcome{}
		w := streams.NewWriter(streams.WriterOptions[send]{
			Driver: m.Driver(), Name: "model", Clock: clock, Timeout: 5 * time.Second,
			MaxUnconfirmed: rapid.IntRange(1, 4).Draw(rt, "unconfirmed"),
			Follows:        follows, FollowsKey: senderOf,
			Settled: func(items []send, outcome streams.Outcome) {
				mu.Lock()
				defer mu.Unlock()
				for _, s := range items {
					if before := told[s]; before != 0 && !(before == streams.Unknown && outcome == streams.Stored) {
						t.Errorf("%s was told %v, then %v", s, before, outcome)
					}
					told[s] = outcome
				}
			},
		})
		accepted := map[send]bool{}
		removed := 0
		numbers := map[string]int{}
		on := rapid.Bool()
		one := func(rt *rapid.T) {
			sender := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "sender")
			numbers[sender]++
			s := send(fmt.Sprintf("%s %d", sender, numbers[sender]))
			if err := w.Append([]byte(s), s); err == nil {
				accepted[s] = true
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"append":       one,
			"append again": one,
			"advance a bit": func(rt *rapid.T) {
				clock.Advance(time.Duration(rapid.IntRange(1, 200).Draw(rt, "ms")) * time.Millisecond)
			},
			"advance": func(rt *rapid.T) {
				clock.Advance(time.Duration(rapid.IntRange(1, 6).Draw(rt, "s")) * time.Second)
			},
			"connect": func(rt *rapid.T) {
				m.Refuse(false)
				m.Stall(false)
				clock.AdvanceUntil(t, longestPause, "the connection", w.Connected)
			},
			"drop":   func(*rapid.T) { m.Drop() },
			"refuse": func(rt *rapid.T) { m.Refuse(on.Draw(rt, "refuse")) },
			"stall":  func(rt *rapid.T) { m.Stall(on.Draw(rt, "stall")) },
			"hold":   func(rt *rapid.T) { m.HoldConfirms(on.Draw(rt, "hold")) },
			"reset":  func(*rapid.T) { w.Reset() },
			"remove": func(rt *rapid.T) {
				sender := rapid.SampledFrom([]byte("abc")).Draw(rt, "sender")
				removed += len(w.Remove(func(s *send) bool { return (*s)[0] == sender }))
			},
		})
		m.Refuse(false)
		m.Stall(false)
		m.HoldConfirms(false)
		closed := make(chan error, 1)
		go func() { closed <- w.Close(context.Background()) }()
		clock.AdvanceUntil(t, 10*time.Second, "the writer to close", func() bool { return len(closed) > 0 })
		if err := <-closed; err != nil {
			rt.Errorf("closing: %v", err)
		}

		mu.Lock()
		defer mu.Unlock()
		stored := map[send]int{}
		last := map[string]int{}
		for _, e := range m.Entries(0) {
			it := streams.Open(e.Data)
			for it.Next() {
				s := send(it.Bytes())
				stored[s]++
				var n int
				sender, number, _ := strings.Cut(string(s), " ")
				if _, err := fmt.Sscan(number, &n); err != nil || n <= last[sender] {
					rt.Errorf("%s is stored after number %d, %v", s, last[sender], err)
				}
				last[sender] = n
			}
			if it.Damaged() || it.Skipped() > 0 {
				rt.Errorf("the entry at %d is damaged", e.Offset)
			}
		}
		silent := 0
		for s := range accepted {
			switch outcome := told[s]; {
			case outcome == 0:
				silent++
				fallthrough
			case outcome == streams.NotStored:
				if stored[s] != 0 {
					rt.Errorf("%s was told %v and is stored", s, outcome)
				}
			case outcome == streams.Stored && stored[s] != 1, stored[s] > 1:
				rt.Errorf("%s was told %v and is stored %d times", s, outcome, stored[s])
			}
		}
		if silent != removed {
			rt.Errorf("%d have no outcome, %d were removed", silent, removed)
		}
		for s := range stored {
			if !accepted[s] {
				rt.Errorf("%s is stored and was refused", s)
			}
		}
	})
}
