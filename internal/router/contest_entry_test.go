package router

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/aether-gateway/gateway/internal/claims"
)

// stalled keeps the answer of its first exchange back until it is let go, and
// counts the later rounds that looked at the open claims.
type stalled struct {
	claims.Claims
	asked, letGo chan struct{} // both closed once
	first        atomic.Bool
	looks        atomic.Int32
}

func (s *stalled) Do(ctx context.Context, rounds []*claims.Round) error {
	err := s.Claims.Do(ctx, rounds)
	if !s.first.Swap(true) {
		close(s.asked)
		<-s.letGo
		return err
	}
	for _, r := range rounds {
		if r.Copy {
			s.looks.Add(1)
		}
	}
	return err
}

// Delivery rule T3: only what a worker left unfinished is given back. A worker
// that has left before its gateway was entered leaves nothing behind that
// would take the claims of those after it for its own.
func TestT3WorkerLeavesWhileItsGatewayEnters(t *testing.T) {
	t.Parallel()
	ps := together(t, 2)
	a, b := ps.list[0], ps.list[1]
	slow := &stalled{Claims: a.r.claimer.claims, asked: make(chan struct{}), letGo: make(chan struct{})}
	a.r.claimer.claims = slow
	y := newTally()
	b.hire("b", 20, y, nil)
	b.entered()
	passing := a.worker("passing", client(20))
	<-slow.asked
	passing.leave()
	one := a.worker("one", client(20))
	close(slow.letGo)
	a.entered()
	from := a.agent("a", client(0))
	held := 0
	for i := 0; held == 0; i++ {
		flood(from, i, 1)
		a.settled()
		a.eventually(func() bool {
			for one.pump() {
			}
			held = len(one.queue)
			return y.count()+held == i+1
		})
	}
	seen := slow.looks.Load()
	a.eventually(func() bool { return slow.looks.Load() >= seen+4 })
	text := string(one.message().GetPayload())
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.times[text] != 0 {
		t.Errorf("%s, which a worker is at, came to another, %d times not flagged", text, y.clean[text])
	}
}

// Delivery rule T3: of a message that was free when the copy was made, nobody
// knows whether a worker has had it since; after a loss of Redis it comes
// flagged.
func TestT3FreeWhenRedisWasLost(t *testing.T) {
	t.Parallel()
	c := newContest(nil, nil)
	for position, attempts := range []uint8{0, 1, 2} {
		c.table[uint64(position)] = claims.Owned{Claim: claims.Claim{Position: uint64(position), Attempts: attempts}}
	}
	for _, o := range c.orphans() {
		if want := max(1, uint8(o.Position)); o.Attempts != want {
			t.Errorf("%d comes as one that was delivered %d times, want %d", o.Position, o.Attempts, want)
		}
	}
}
