package rabbitmq

import "sync"

// partition is one stream. It is safe for concurrent use.
//
// It remembers how far the log is known to reach, while consumers are open that
// would notice the loss of the broker: after it the log may be shorter, or
// another one. An era is a time without such a loss; what was read in an older
// one proves nothing.
type partition struct {
	name string

	mu        sync.Mutex
	consumers int
	era       uint64
	end       uint64 // the log has had entries with offsets up to just below this
}

// join counts a consumer in and returns the era.
func (p *partition) join() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.consumers++
	return p.era
}

// leave counts it out.
func (p *partition) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.consumers--; p.consumers == 0 {
		p.forget()
	}
}

// lost begins a new era: somebody's connection was lost.
func (p *partition) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forget()
}

func (p *partition) forget() {
	p.era++
	p.end = 0
}

// saw records that a consumer of this era has read an entry with this offset.
func (p *partition) saw(era, offset uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if era == p.era && offset >= p.end {
		p.end = offset + 1
	}
}

// reaches reports whether the log is known to have entries up to just below offset.
func (p *partition) reaches(offset uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.end >= offset
}
