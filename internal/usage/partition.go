package usage

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"github.com/aether-gateway/gateway/internal/store"
)

const none int64 = -1

// offsets is how many positions an entry has.
const offsets = 1024

// Partition counts what one partition holds. Add is called by one goroutine, in
// the order of the log.
type Partition struct {
	u  *Usage
	id int

	mu     sync.Mutex
	upTo   int64   // the last position that was counted
	loaded int64   // what that was when this gateway began
	slots  []*slot // in the order of their numbers; at most slots + 2, then the oldest are one
	cells  int
	reset  bool // the log was made anew, and the store does not know
}

// slot is what was sent within a stretch of time.
type slot struct {
	number      int64
	first, last uint64 // offsets
	cells       map[string]*cell
	dirty       bool // not saved
}

// cell is what a workspace has of a slot.
type cell struct {
	total *total // to which it counts
	bytes int64
}

func (c *cell) add(bytes int64) {
	c.bytes += bytes
	c.total.bytes.Add(bytes)
}

// Add counts one envelope of the log. What lies at or below a position that was
// counted is passed over. own says that this process has written it.
func (p *Partition) Add(workspace []byte, stampMS int64, position int64, bytes int, own bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if own && position <= p.loaded {
		p.forget() // what was counted before this process wrote was in another log
	}
	if position <= p.upTo {
		return
	}
	p.upTo = position
	s := p.slot(p.u.slot(stampMS), uint64(position)/offsets)
	s.last = max(s.last, uint64(position)/offsets)
	s.dirty = true
	c := s.cells[string(workspace)]
	if c == nil {
		c = p.cell(s, string(workspace))
	}
	c.add(int64(bytes))
}

// slot returns the slot of a number, which may lie a little in the past or, if a
// clock is wrong, anywhere. The mutex is held.
func (p *Partition) slot(number int64, offset uint64) *slot {
	if n := len(p.slots); n > 0 && p.slots[n-1].number == number {
		return p.slots[n-1]
	}
	// The log is in the order of time, but for what clocks differ by: a stamp
	// before or far behind the others counts with its neighbours in the log.
	newest := p.u.slot(p.u.o.Now().UnixMilli()) + 1
	number = min(number, newest)
	if n := len(p.slots); n > 0 {
		number = max(number, p.slots[n-1].number)
		if p.slots[n-1].number == number {
			return p.slots[n-1]
		}
	}
	s := &slot{number: number, first: offset, last: offset, cells: map[string]*cell{}}
	p.slots = append(p.slots, s)
	if len(p.slots) > slots+2 {
		p.merge()
	}
	return s
}

// merge makes one slot of the two oldest.
func (p *Partition) merge() {
	a, b := p.slots[0], p.slots[1]
	for workspace, c := range a.cells {
		to := b.cells[workspace]
		if to == nil {
			b.cells[workspace] = c
			continue
		}
		to.add(c.bytes)
		p.empty(c)
	}
	b.first, b.dirty = a.first, true
	p.slots = p.slots[1:]
}

// empty takes a cell away.
func (p *Partition) empty(c *cell) {
	c.add(-c.bytes)
	p.u.release(c.total)
	p.cells--
}

// cell returns a new cell for a workspace, or the one that many share.
func (p *Partition) cell(s *slot, workspace string) *cell {
	t := p.u.hold(workspace, p.cells >= maxCells)
	if t.name == together {
		if c := s.cells[together]; c != nil {
			p.u.release(t)
			return c
		}
	}
	c := &cell{total: t}
	s.cells[t.name] = c
	p.cells++
	return c
}

// load takes what was saved. It is called before the first Add.
func (p *Partition) load(saved store.StoredUsage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upTo, p.loaded = int64(saved.Position), int64(saved.Position)
	slices.SortStableFunc(saved.Rows, func(a, b store.StoredBytes) int { return cmp.Compare(a.Slot, b.Slot) })
	for _, r := range saved.Rows {
		number := r.Slot
		if saved.Width != p.u.width && saved.Width > 0 {
			number = p.u.slot(r.Slot * saved.Width.Milliseconds())
		}
		s := p.slot(number, r.First)
		s.last = max(s.last, r.Last)
		s.dirty = s.dirty || saved.Width != p.u.width
		c := s.cells[r.Workspace]
		if c == nil {
			c = p.cell(s, r.Workspace)
		}
		c.add(r.Bytes)
	}
}

// trim forgets what lies before an offset. Of a slot that is removed in part, as
// large a part of everybody's bytes goes as of its entries.
func (p *Partition) trim(first uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.slots) > 0 && p.slots[0].last < first {
		p.drop(p.slots[0])
		p.slots = p.slots[1:]
	}
	if len(p.slots) == 0 || p.slots[0].first >= first {
		return
	}
	s := p.slots[0]
	left := float64(s.last+1-first) / float64(s.last+1-s.first)
	s.first, s.dirty = first, true
	for _, c := range s.cells {
		c.add(int64(float64(c.bytes)*left) - c.bytes)
	}
}

func (p *Partition) drop(s *slot) {
	for _, c := range s.cells {
		p.empty(c)
	}
}

// Rewind is called when the log is another one behind a position, -1 for all of
// it. What comes there is counted; what was there stays counted, but for a log
// that was made anew.
func (p *Partition) Rewind(to int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if to < 0 {
		p.forget()
		return
	}
	p.upTo, p.reset = min(p.upTo, to), true
	for _, s := range p.slots {
		s.dirty = true
	}
}

// forget begins anew. The mutex is held.
func (p *Partition) forget() {
	for _, s := range p.slots {
		p.drop(s)
	}
	p.slots, p.upTo, p.loaded, p.reset = nil, none, none, true
}

// save saves the slots that have changed since this gateway last did.
func (p *Partition) save(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	p.mu.Lock()
	reset := p.reset
	p.mu.Unlock()
	if reset {
		if err := p.u.o.Store.ResetStored(ctx, p.id); err != nil {
			return err
		}
		p.mu.Lock()
		p.reset = false
		p.mu.Unlock()
	}
	p.mu.Lock()
	oldest := p.u.oldest()
	if len(p.slots) > 0 {
		oldest = p.slots[0].number
	}
	u := store.StoredUsage{Width: p.u.width, Position: uint64(max(p.upTo, 0))}
	var saved []*slot
	for _, s := range p.slots {
		if !s.dirty {
			continue
		}
		s.dirty = false
		saved = append(saved, s)
		for workspace, c := range s.cells {
			u.Rows = append(u.Rows, store.StoredBytes{Slot: s.number, Workspace: workspace, Bytes: c.bytes, First: s.first, Last: s.last})
		}
	}
	p.mu.Unlock()
	if len(saved) == 0 {
		return nil
	}
	// Half a round: gateways that save in turn need not all do it.
	done, err := p.u.o.Store.SaveStored(ctx, p.id, u, oldest, p.u.o.Now().Add(-saveEvery/2))
	if err != nil || !done {
		p.mu.Lock()
		for _, s := range saved {
			s.dirty = true
		}
		p.mu.Unlock()
	}
	return err
}
