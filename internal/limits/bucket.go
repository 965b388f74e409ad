package limits

import (
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

// meter is one measure of a bucket.
type meter struct {
	rate, burst float64 // of all gateways together; 0 is no limit
	share       float64 // the part that this gateway may use
	tokens      float64 // what it has left; negative after what was more than all
	used, told  float64 // see [presence.Measure]
	tried       float64 // what was asked for since it was told
	wanted      float64 // per second, as it was told
}

// cost is what a send takes of each measure.
type cost [units]float64

// bucket is what a key has left on this gateway.
type bucket struct {
	scope Scope
	name  string // of the identity, source or workspace
	key   string // among the counters

	// Guarded by the limiter's lock.
	refs    int  // accounts that use it
	holders int  // of these, those of sessions that count
	leaving bool // nobody uses it, and the others have to be told
	place   int  // among the shared ones, -1: not among them

	mu      sync.Mutex
	at      time.Time // of tokens
	meters  [units]meter
	touched bool // it is on the list of those to be told of
	starved bool // and soon
	toldAt  time.Time
	others  int // sessions of other gateways
	peers   int // other gateways that have it open
}

// fill adds what time has brought. The lock is held, here and below.
func (b *bucket) fill(now time.Time) {
	passed := now.Sub(b.at).Seconds()
	if passed <= 0 {
		return
	}
	b.at = now
	for i := range b.meters {
		if m := &b.meters[i]; m.rate > 0 {
			m.tokens = min(m.burst*m.share, m.tokens+m.rate*m.share*passed)
		}
	}
}

// take takes the cost of one send, or says what is missing. What costs more
// than can be saved up passes when all that can be is there.
func (b *bucket) take(now time.Time, c *cost) Verdict {
	b.fill(now)
	for i := range b.meters {
		m := &b.meters[i]
		if m.rate <= 0 {
			continue
		}
		if lack := min(c[i], m.burst*m.share) - m.tokens; lack > 0 {
			for j := range b.meters {
				b.meters[j].tried += c[j]
			}
			return Verdict{Refused: true, Scope: b.scope, Unit: Unit(i), Limit: m.rate, After: m.wait(lack)}
		}
	}
	for i := range b.meters {
		m := &b.meters[i]
		m.tried += c[i]
		m.used += c[i]
		if m.rate > 0 {
			m.tokens -= c[i]
		}
	}
	return Verdict{}
}

// shareWait is how soon a part that is too small may have grown.
const shareWait = 250 * time.Millisecond

// wait is how long it takes until so much more is there.
func (m *meter) wait(lack float64) time.Duration {
	whole := seconds(lack / m.rate)
	if m.share >= 1 {
		return whole
	}
	if part := lack / (m.rate * max(m.share, 1e-6)); part < (whole + shareWait).Seconds() {
		return seconds(part)
	}
	return whole + shareWait
}

// maxWait bounds what a sender is told to wait.
const maxWait = time.Minute

func seconds(s float64) time.Duration {
	return min(max(time.Duration(min(s, maxWait.Seconds())*float64(time.Second)), time.Millisecond), maxWait)
}

// back gives back what a send took that was refused for another reason.
func (b *bucket) back(c *cost) {
	for i := range b.meters {
		m := &b.meters[i]
		m.used -= c[i]
		m.tried -= c[i]
		if m.rate > 0 {
			m.tokens += c[i]
		}
	}
}

// full reports whether forgetting the bucket would change nothing.
func (b *bucket) full(now time.Time) bool {
	b.fill(now)
	for i := range b.meters {
		if m := &b.meters[i]; m.rate > 0 && m.tokens < m.burst*m.share {
			return false
		}
	}
	return true
}

// urgent reports whether the others are to be told soon: because this gateway
// needs a larger part, or because it has used much that they do not know of.
func (b *bucket) urgent() bool {
	for i := range b.meters {
		m := &b.meters[i]
		if m.rate <= 0 {
			continue
		}
		if b.peers > 0 && m.share < 1 && m.tokens < m.burst*m.share/2 || m.used-m.told >= m.burst/4 {
			return true
		}
	}
	return false
}

// due reports whether the others are to be told by now.
func (b *bucket) due(now time.Time) bool {
	passed := max(now.Sub(b.toldAt), roundEvery)
	if b.starved || b.toldAt.IsZero() || passed >= tellAtLeast {
		return true
	}
	for i := range b.meters {
		m := &b.meters[i]
		if m.rate <= 0 {
			continue
		}
		if m.used-m.told >= m.rate*tellPart {
			return true
		}
		if d := m.tried/passed.Seconds() - m.wanted; d > m.rate*tellPart || -d > m.rate*tellPart {
			return true
		}
	}
	return false
}

// tell makes what is told of the bucket.
func (b *bucket) tell(now time.Time, u *presence.Usage) {
	passed := now.Sub(b.toldAt).Seconds()
	if b.toldAt.IsZero() || passed > tellAtLeast.Seconds() {
		passed = tellAtLeast.Seconds()
	}
	passed = max(passed, minRound.Seconds())
	u.Key = b.key
	for i := range b.meters {
		m := &b.meters[i]
		rate := m.tried / passed
		if half := m.wanted / 2; rate < half && half > m.rate*tellPart {
			rate = half // a pause between two bursts gives nothing away
		}
		m.wanted, m.tried = min(rate, m.rate), 0
		u.Measures[i] = presence.Measure{Rate: m.rate, Burst: m.burst, Used: m.used, Told: m.told, Wanted: m.wanted}
	}
	b.toldAt, b.starved = now, false
}

// told takes the answer.
func (b *bucket) told(now time.Time, u *presence.Usage) {
	b.fill(now)
	b.others, b.peers = 0, len(u.Others)
	for _, o := range u.Others {
		b.others += o.Holders
	}
	for i := range b.meters {
		m, answer := &b.meters[i], &u.Measures[i]
		m.told = answer.Used
		if m.rate <= 0 {
			continue
		}
		m.share = share(m.rate, answer.Wanted, u.Others, Unit(i))
		m.settle(answer.Left*m.share - (m.used - answer.Used))
	}
}

// settle brings what the gateway believes to have left to its part of what all
// have. A little difference is what others have used and not told yet, or the
// other way round: following it at once would let the one that asks last go
// short.
func (m *meter) settle(left float64) {
	if d := left - m.tokens; d < m.rate*noise && -d < m.rate*noise {
		left = m.tokens + d/4
	}
	m.tokens = min(m.burst*m.share, left)
}

// noise is the part of a second's rate within which a difference is none.
const noise = 0.2

// resting reports whether nothing is to be told of the bucket.
func (b *bucket) resting() bool {
	for i := range b.meters {
		m := &b.meters[i]
		if m.tried > 0 || m.wanted > 0 || m.used != m.told {
			return false
		}
	}
	return true
}
