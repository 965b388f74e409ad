package local

import (
	"context"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

// Counters are [presence.Counters] in memory, for the gateways of one process.
// What it keeps of a key goes when nobody has it open and its bucket is full
// again.
type Counters struct {
	now func() time.Time

	mu   sync.Mutex
	keys map[string]*counter
}

type counter struct {
	at      time.Time
	left    [presence.Measures]float64
	tellers map[string]*teller // by gateway
	last    presence.Usage     // whose rates count
}

type teller struct {
	at      time.Time
	used    [presence.Measures]float64
	wanted  [presence.Measures]float64
	holders int
}

// NewCounters returns counters on which nothing was used. now is their clock;
// nil is [time.Now].
func NewCounters(now func() time.Time) *Counters {
	if now == nil {
		now = time.Now
	}
	return &Counters{now: now, keys: map[string]*counter{}}
}

// Of returns the counters as the gateway with that id sees them.
func (c *Counters) Of(gateway string) presence.Counters { return &countersOf{c, gateway} }

type countersOf struct {
	c  *Counters
	id string
}

var _ presence.Counters = (*countersOf)(nil)

// Exchange implements [presence.Counters].
func (o *countersOf) Exchange(ctx context.Context, usages []*presence.Usage) error {
	if err := ctx.Err(); err != nil {
		return presence.ErrCounters
	}
	for _, u := range usages {
		if err := presence.CheckUsage(u); err != nil {
			return err
		}
	}
	o.c.mu.Lock()
	defer o.c.mu.Unlock()
	now := o.c.now()
	for _, u := range usages {
		o.c.exchange(o.id, u, now)
	}
	return nil
}

// Len returns how many keys are kept, after those are forgotten that need not
// be.
func (c *Counters) Len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.now()
	for key, k := range c.keys {
		k.forget(now)
		if len(k.tellers) == 0 && k.full(now) {
			delete(c.keys, key)
		}
	}
	return len(c.keys)
}

func (c *Counters) exchange(id string, u *presence.Usage, now time.Time) {
	k := c.keys[u.Key]
	if k == nil {
		k = &counter{at: now, tellers: map[string]*teller{}}
		for i, m := range u.Measures {
			k.left[i] = m.Burst
		}
		c.keys[u.Key] = k
	}
	k.last = *u
	k.forget(now)
	t := k.tellers[id]
	if t == nil {
		t = &teller{}
		k.tellers[id] = t
	}
	passed := max(0, now.Sub(k.at).Seconds())
	k.at = now
	for i := range u.Measures {
		m := &u.Measures[i]
		used := m.Used - m.Told
		if t.used[i] > m.Told && t.used[i] <= m.Used {
			used = m.Used - t.used[i] // an answer was lost
		}
		// What was used was used while it filled, so it is taken first.
		k.left[i] = min(m.Burst, max(-m.Burst, k.left[i]+m.Rate*passed-max(used, 0)))
		t.used[i], t.wanted[i], m.Left = m.Used, m.Wanted, k.left[i]
	}
	t.at, t.holders = now, u.Holders
	if u.Leaving {
		delete(k.tellers, id)
	}
	u.Others = u.Others[:0]
	for other, t := range k.tellers {
		if other == id {
			continue
		}
		o := presence.OtherUsage{Holders: t.holders}
		if now.Sub(t.at) <= presence.CounterFresh {
			o.Wanted = t.wanted
		}
		u.Others = append(u.Others, o)
	}
}

func (k *counter) forget(now time.Time) {
	for id, t := range k.tellers {
		if now.Sub(t.at) > presence.CounterKept {
			delete(k.tellers, id)
		}
	}
}

func (k *counter) full(now time.Time) bool {
	for i, m := range k.last.Measures {
		if k.left[i]+m.Rate*now.Sub(k.at).Seconds() < m.Burst {
			return false
		}
	}
	return true
}
