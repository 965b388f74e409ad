package delivery

import (
	"math"
	"sync"

	"github.com/aether-gateway/gateway/internal/delivery/ring"
	"github.com/aether-gateway/gateway/internal/delivery/route"
)

// Shared is an encoded frame on its way to many sessions. It is the same for
// all, and is never changed.
type Shared struct {
	Frame []byte
	// Ballots are the votes of those cursors that have one; nil for a message that
	// is not tracked.
	Ballots map[*Cursor]Ballot
}

func (s *Shared) gone(c *Cursor) { s.Ballots[c].Cast(VoteGone, reasonLagged) }

// Ring is the frames of one shared address that somebody has yet to take.
type Ring = ring.Ring[Shared]

// NewRing returns a ring; what is tracked and missed is voted on. Zero bounds are
// the defaults.
func NewRing(capacity, bytes int, counters *ring.Counters) *Ring {
	return ring.New(ring.Options[Shared]{Capacity: capacity, Bytes: bytes, Counters: counters, Missed: func(rd *ring.Reader[Shared], s Shared) {
		s.gone(rd.Data.(*Cursor))
	}})
}

// Cursor is one session's place in a shared address: a reader of its ring, or a
// route of its own. Nothing of it is acknowledged; who is too slow is told of
// the loss. Its methods are safe for concurrent use, but [Cursor.Follow] and
// [Cursor.Queue] are for one caller at a time.
type Cursor struct {
	name string
	box  *Mailbox

	// mu lies above the locks of rings and routes, those above the mailbox's.
	mu     sync.Mutex
	reader *ring.Reader[Shared]
	route  *route.Route[Shared]
	// What was waiting when the cursor changed; lost came before it. It is
	// bounded as a ring is.
	kept     queue[Shared]
	keptSize int
	lost     Gap
	left     bool

	ready bool // stands in the mailbox's list; of the mailbox's lock
}

// NewCursor returns a cursor that gets nothing yet. name is what gaps of it are
// told of.
func (m *Mailbox) NewCursor(name string) *Cursor { return &Cursor{name: name, box: m} }

// Name is what gaps of the cursor are told of.
func (c *Cursor) Name() string { return c.name }

// wake has the pump read from the cursor. Locks of a ring or route may be held.
func (c *Cursor) wake() {
	m := c.box
	m.mu.Lock()
	defer m.mu.Unlock()
	if c.ready || m.closed || m.deaf {
		return
	}
	c.ready = true
	m.ready.push(c)
	m.signal()
}

// Follow joins a ring: the cursor gets what is published from now on, after what
// waits for it.
func (c *Cursor) Follow(r *Ring, j ring.Join) {
	j.Wake = c.wake
	if j.Disconnect && c.box.opts.Lagged != nil {
		j.Lagged = func() { c.box.opts.Lagged(c.name) }
	}
	c.change(func() {
		c.reader = r.Join(j)
		c.reader.Data = c
	})
}

// Queue gives the cursor a route of its own, behind what waits for it.
func (c *Cursor) Queue(o route.Options) {
	o.Wake = c.wake
	c.change(func() { c.route = route.New(o, func(s Shared) { s.gone(c) }) })
}

// change keeps what waits, and takes up another place.
func (c *Cursor) change(to func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return
	}
	c.keep()
	c.leave()
	to()
	if c.kept.len() > 0 || c.lost.Dropped > 0 {
		c.wake()
	}
}

// keep takes over what waits. What was lost lies before all that is kept.
func (c *Cursor) keep() {
	var items []Shared
	gap := Gap{}
	if c.reader != nil || c.route != nil {
		items, gap, _ = c.take(nil, math.MaxInt32, math.MaxInt)
	}
	for _, s := range items {
		c.keptSize += len(s.Frame)
		c.kept.push(s)
	}
	for c.kept.len() > len(items) && (gap.Dropped > 0 || c.kept.len() > ring.DefaultCapacity || c.keptSize > ring.DefaultBytes) {
		s := c.kept.at(0)
		c.lost.Dropped++
		c.lost.Bytes += uint64(len(s.Frame))
		c.keptSize -= len(s.Frame)
		s.gone(c)
		c.kept.drop(1)
	}
	c.lost.Dropped += gap.Dropped
	c.lost.Bytes += gap.Bytes
}

// Reader is the cursor's reader, nil if it has none.
func (c *Cursor) Reader() *ring.Reader[Shared] {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.reader
}

// Push queues a frame in the cursor's route, in the name of the principal that
// sent it. It does nothing without one.
func (c *Cursor) Push(principal []byte, subject int, s Shared) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.route == nil {
		return
	}
	if res := c.route.Push(principal, route.Cost(len(s.Frame), subject), s); res.Reject != route.Taken {
		s.gone(c)
	}
}

// read is what the pump does: n frames at most, and about so many bytes. The gap
// lies before them. With more the cursor is to have another turn.
func (c *Cursor) read(dst []Shared, n, bytes int) (_ []Shared, gap Gap, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.left {
		return dst, gap, false
	}
	if c.kept.len() == 0 && c.lost.Dropped == 0 {
		return c.take(dst, n, bytes)
	}
	gap = c.lost
	gap.Topic, c.lost = c.name, Gap{}
	for ; c.kept.len() > 0 && n > 0 && bytes > 0; n-- {
		s := *c.kept.at(0)
		c.kept.drop(1)
		c.keptSize -= len(s.Frame)
		bytes -= len(s.Frame)
		dst = append(dst, s)
	}
	return dst, gap, true
}

func (c *Cursor) take(dst []Shared, n, bytes int) (_ []Shared, gap Gap, more bool) {
	gap.Topic = c.name
	switch {
	case c.reader != nil:
		var lag ring.Lag
		dst, lag, more, _ = c.reader.Read(dst, n, bytes)
		gap.Dropped, gap.Bytes = lag.Missed, lag.Bytes
	case c.route != nil:
		g := c.route.Gap()
		gap.Dropped, gap.Bytes = g.Count, g.Bytes-route.Overhead*g.Count
		dst, more = c.route.Take(dst, n, bytes)
	}
	return dst, gap, more
}

// Leave ends the cursor: what waits for it is forgotten. It may be repeated.
func (c *Cursor) Leave() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = true
	c.leave()
	c.kept.clear()
	c.keptSize, c.lost = 0, Gap{}
}

func (c *Cursor) leave() {
	if c.reader != nil {
		c.reader.Leave()
	}
	if c.route != nil {
		c.route.Shut()
		c.route.Clear()
	}
	c.reader, c.route = nil, nil
}
