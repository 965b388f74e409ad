package streamstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// ErrRefused is what opening returns while a [Memory] refuses it.
var ErrRefused = errors.New("streamstest: refused")

// Memory is a broker in memory, with faults that can be switched. Drivers on
// it come from [Memory.Driver] and all see the same partitions. It is safe for
// concurrent use.
type Memory struct {
	mu         sync.Mutex
	partitions []*partition
	open       map[*link]struct{}
	changed    chan struct{} // closed and replaced whenever anything changes
	refuse     bool
	stall      bool
	hold       bool
	hang       bool
	sends      []uint64
}

type partition struct {
	entries []streams.Entry
	stored  []time.Time       // when each entry was
	trimmed int               // how many entries have been removed
	next    uint64            // nothing below is left, if there are no entries
	last    map[string]uint64 // by producer name
}

// NewMemory returns an empty log of n partitions.
func NewMemory(n int) *Memory {
	m := &Memory{open: make(map[*link]struct{}), changed: make(chan struct{})}
	for range n {
		m.partitions = append(m.partitions, &partition{last: make(map[string]uint64)})
	}
	return m
}

// Driver returns a new driver on the log.
func (m *Memory) Driver() streams.Driver {
	return &memoryDriver{m: m, closed: make(chan struct{})}
}

// Refuse makes opening fail, or succeed again.
func (m *Memory) Refuse(on bool) { m.set(&m.refuse, on) }

// Stall makes the broker silent, or go on: connections stay, nothing is
// stored, confirmed or delivered, and opening waits for the end of its
// context.
func (m *Memory) Stall(on bool) { m.set(&m.stall, on) }

// HoldConfirms keeps confirms back, or lets them go. What a connection still
// holds when it is lost is stored and never confirmed.
func (m *Memory) HoldConfirms(on bool) { m.set(&m.hold, on) }

// Hang makes opening, sending and closing block, whatever their contexts say,
// or go on.
func (m *Memory) Hang(on bool) { m.set(&m.hang, on) }

// Drop loses every connection. What was sent and not stored is gone.
func (m *Memory) Drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for l := range m.open {
		l.lose()
	}
	clear(m.open)
}

// Lose makes a partition hold its first keep entries only, as a broker does that
// has lost what it had not written to its disk; or, with 0, deletes it and makes
// it anew: then it knows no producer any more. All connections are lost.
func (m *Memory) Lose(partition, keep int) {
	m.mu.Lock()
	p := m.partitions[partition]
	p.entries = slices.Clone(p.entries[:keep])
	p.stored = slices.Clone(p.stored[:keep])
	if keep == 0 {
		clear(p.last)
	}
	m.mu.Unlock()
	m.Drop()
}

// Sends returns the ids of all Send calls so far, of all producers.
func (m *Memory) Sends() []uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.sends)
}

// Trim removes the entries below an offset, as retention does.
func (m *Memory) Trim(partition int, below uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.partitions[partition]
	n := 0
	for n < len(p.entries) && p.entries[n].Offset < below {
		n++
	}
	if n > 0 {
		p.next = p.entries[n-1].Offset + 1
	}
	p.entries, p.stored = slices.Clone(p.entries[n:]), slices.Clone(p.stored[n:])
	p.trimmed += n
}

// Entries returns what a partition holds.
func (m *Memory) Entries(partition int) []streams.Entry {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.partitions[partition].entries)
}

// Await waits until cond, which is called under the broker's lock whenever
// something has changed, or until stop is closed; it reports which.
func (m *Memory) await(cond func() bool, stop <-chan struct{}) bool {
	for {
		m.mu.Lock()
		ok, changed := cond(), m.changed
		m.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-stop:
			return false
		}
	}
}

func (m *Memory) set(fault *bool, on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*fault = on
	m.announce()
}

func (m *Memory) announce() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Memory) waitWhileHanging() { m.await(func() bool { return !m.hang }, nil) }

// memoryDriver is one user of a Memory.
type memoryDriver struct {
	m      *Memory
	mu     sync.Mutex
	links  []*link
	once   sync.Once
	closed chan struct{}
}

var _ streams.Driver = (*memoryDriver)(nil)

func (d *memoryDriver) Partitions() int { return len(d.m.partitions) }

// connect makes the link of a producer or consumer. task is its goroutine; it
// ends when the link is lost.
func (d *memoryDriver) connect(ctx context.Context, n int) (*link, error) {
	if n < 0 || n >= len(d.m.partitions) {
		return nil, fmt.Errorf("streamstest: there is no partition %d", n)
	}
	d.m.waitWhileHanging()
	refused := false
	if !d.m.await(func() bool { refused = d.m.refuse; return refused || !d.m.stall }, ctx.Done()) {
		return nil, ctx.Err()
	}
	if refused {
		return nil, ErrRefused
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	select {
	case <-d.closed:
		return nil, streams.ErrClosed
	default:
	}
	l := &link{m: d.m, partition: d.m.partitions[n], lost: make(chan struct{}), ended: make(chan struct{})}
	d.links = append(d.links, l)
	d.m.mu.Lock()
	d.m.open[l] = struct{}{}
	d.m.mu.Unlock()
	return l, nil
}

func (d *memoryDriver) OpenProducer(ctx context.Context, partition int, name string, confirmed func(id uint64)) (streams.Producer, error) {
	l, err := d.connect(ctx, partition)
	if err != nil {
		return nil, err
	}
	p := &memoryProducer{link: l, name: name, confirmed: confirmed, queue: make(chan sent, 64)}
	l.m.mu.Lock()
	p.last = l.partition.last[name]
	l.m.mu.Unlock()
	go p.run()
	return p, nil
}

func (d *memoryDriver) OpenConsumer(ctx context.Context, partition int, from streams.Start, handle func(streams.Entry)) (streams.Consumer, error) {
	l, err := d.connect(ctx, partition)
	if err != nil {
		return nil, err
	}
	c := &memoryConsumer{link: l, handle: handle}
	l.m.mu.Lock()
	if offset, ok := from.Offset(); ok {
		c.from = offset
	} else if from.IsNext() {
		c.next = l.partition.trimmed + len(l.partition.entries)
	} else if since, ok := from.Time(); ok {
		c.next = l.partition.trimmed +
			sort.Search(len(l.partition.stored), func(i int) bool { return !l.partition.stored[i].Before(since) })
	}
	l.m.mu.Unlock()
	go c.run()
	return c, nil
}

// First implements [streams.Driver].
func (d *memoryDriver) First(ctx context.Context, partition int) (streams.Entry, error) {
	l, err := d.connect(ctx, partition)
	if err != nil {
		return streams.Entry{}, err
	}
	close(l.ended)
	defer func() { _ = l.Close() }()
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if len(l.partition.entries) == 0 {
		return streams.Entry{Offset: l.partition.next}, nil
	}
	return l.partition.entries[0], nil
}

func (d *memoryDriver) Close() error {
	d.once.Do(func() {
		d.mu.Lock()
		close(d.closed)
		links := d.links
		d.mu.Unlock()
		for _, l := range links {
			_ = l.Close()
		}
	})
	return nil
}

// link is one connection to the broker.
type link struct {
	m         *Memory
	partition *partition
	once      sync.Once
	lost      chan struct{}
	ended     chan struct{} // the goroutine has returned
}

func (l *link) lose() { l.once.Do(func() { close(l.lost) }) }

func (l *link) Done() <-chan struct{} { return l.lost }

func (l *link) Close() error {
	l.lose()
	l.m.waitWhileHanging()
	<-l.ended
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	delete(l.m.open, l)
	return nil
}

func (l *link) over() bool {
	select {
	case <-l.lost:
		return true
	default:
		return false
	}
}

type sent struct {
	id   uint64
	data []byte
}

type memoryProducer struct {
	*link
	name      string
	last      uint64
	confirmed func(uint64)
	queue     chan sent
	held      []uint64 // stored, to be confirmed; of run
}

func (p *memoryProducer) LastID() uint64 { return p.last }

func (p *memoryProducer) Send(id uint64, entry []byte) error {
	p.m.waitWhileHanging()
	if p.over() {
		return streams.ErrClosed
	}
	p.m.mu.Lock()
	p.m.sends = append(p.m.sends, id)
	p.m.mu.Unlock()
	select {
	case p.queue <- sent{id, entry}:
		return nil
	case <-p.lost:
		return streams.ErrClosed
	}
}

func (p *memoryProducer) run() {
	defer close(p.ended)
	for !p.over() {
		p.m.mu.Lock()
		changed := p.m.changed
		confirm := !p.m.hold && !p.m.stall
		p.m.mu.Unlock()
		if confirm {
			for _, id := range p.held {
				if p.over() {
					return
				}
				p.confirmed(id)
			}
			p.held = p.held[:0]
		}
		select {
		case s := <-p.queue:
			if p.store(s) {
				p.held = append(p.held, s.id)
			}
		case <-changed:
		case <-p.lost:
		}
	}
}

// store stores an entry if its id is new under the producer's name.
func (p *memoryProducer) store(s sent) bool {
	if !p.m.await(func() bool { return !p.m.stall }, p.lost) || p.over() {
		return false
	}
	p.m.mu.Lock()
	defer p.m.mu.Unlock()
	if s.id <= p.partition.last[p.name] {
		return true
	}
	p.partition.last[p.name] = s.id
	offset := p.partition.next // with gaps: offsets rise and are not dense
	if n := len(p.partition.entries); n > 0 {
		offset = p.partition.entries[n-1].Offset + 1 + uint64(n%3)
	}
	p.partition.entries = append(p.partition.entries, streams.Entry{Offset: offset, Data: slices.Clone(s.data)})
	p.partition.stored = append(p.partition.stored, time.Now())
	p.m.announce()
	return true
}

type memoryConsumer struct {
	*link
	handle func(streams.Entry)
	from   uint64 // offsets below are passed over
	next   int    // index of the next entry, counted from the log's birth; of run
}

func (c *memoryConsumer) run() {
	defer close(c.ended)
	for {
		var e streams.Entry
		found := c.m.await(func() bool {
			c.next = max(c.next, c.partition.trimmed)
			if c.m.stall || c.next >= c.partition.trimmed+len(c.partition.entries) {
				return false
			}
			e = c.partition.entries[c.next-c.partition.trimmed]
			return true
		}, c.lost)
		if !found || c.over() {
			return
		}
		c.next++
		if e.Offset >= c.from {
			c.handle(e)
		}
	}
}
