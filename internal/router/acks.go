package router

import (
	"sync"
	"time"
)

// acks are the finished messages of a group. Its lock is below all others: a
// mailbox tells while it is locked.
type acks struct {
	mu   sync.Mutex
	list []uint64
}

// acked records that a worker is done with a message.
func (c *contest) acked(position uint64) {
	c.acks.mu.Lock()
	c.acks.list = append(c.acks.list, position)
	n := len(c.acks.list)
	c.acks.mu.Unlock()
	switch n {
	case 1:
		c.schedule(time.Now().Add(ackDelay))
	case maxAcksAtOnce:
		c.schedule(time.Now())
	}
}

func (c *contest) someAcks() []uint64 {
	c.acks.mu.Lock()
	defer c.acks.mu.Unlock()
	n := min(len(c.acks.list), maxAcksAtOnce)
	return c.acks.list[:n:n]
}

func (c *contest) allAcks() map[uint64]struct{} {
	c.acks.mu.Lock()
	defer c.acks.mu.Unlock()
	all := make(map[uint64]struct{}, len(c.acks.list))
	for _, position := range c.acks.list {
		all[position] = struct{}{}
	}
	return all
}

// dropAcks forgets the first n, and reports whether more wait.
func (c *contest) dropAcks(n int) bool {
	c.acks.mu.Lock()
	defer c.acks.mu.Unlock()
	c.acks.list = c.acks.list[n:]
	if len(c.acks.list) == 0 {
		c.acks.list = nil
	}
	return len(c.acks.list) > 0
}
