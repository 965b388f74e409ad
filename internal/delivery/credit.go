package delivery

// Credit is what a worker would take now.
type Credit struct {
	// Load is how much tracked work it has.
	Load int
	// Frames and Bytes are how much more it would take; a first frame may be
	// larger than that if nothing waits.
	Frames, Bytes int
}

// Credit returns what the session would take as a worker.
func (m *Mailbox) Credit() Credit {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := Credit{Load: m.load()}
	if !m.willing(0) {
		return c
	}
	c.Frames = min(m.opts.MaxUnacked-c.Load, maxQueueFrames-m.tracked.frames)
	if m.opts.Mode == Client {
		c.Frames = min(c.Frames, openRecords*m.opts.MaxUnacked-m.ledger.len())
	}
	c.Bytes = max(m.opts.QueueBytes-m.tracked.bytes, 0)
	return c
}
