package delivery

// Batch is what a pump took: frames in the order in which they go out. It is
// reused; its frames are valid until the next Take with it.
type Batch struct {
	Frames [][]byte
	// Gaps are losses to tell before the frames.
	Gaps []Gap
	// Feed are inboxes that have room again and are not fed by a tail.
	Feed []*Inbox

	bytes   int      // of Frames
	votes   []Ballot // of shared frames, to be cast when they are written
	retired []*chunk
	cursors []*Cursor // whose turn it is
	shared  []Shared  // scratch
	taken   []takenDelivery
}

type takenDelivery struct {
	id    uint64
	index int // in Frames
}

const (
	batchFrames = 64
	batchBytes  = 64 << 10
)

func (b *Batch) reset() {
	for _, c := range b.retired {
		c.release()
	}
	clear(b.Frames)
	b.Frames, b.Gaps, b.Feed = b.Frames[:0], b.Gaps[:0], b.Feed[:0]
	b.retired, b.taken, b.bytes = b.retired[:0], b.taken[:0], 0
	clear(b.votes)
	b.votes = b.votes[:0]
}

// Take fills b with what may go out now and reports whether that is anything.
// If not, the pump waits for [Mailbox.Wake].
func (m *Mailbox) Take(b *Batch) bool {
	b.reset()
	for {
		m.mu.Lock()
		m.takeOwn(b)
		if len(b.cursors) == 0 {
			took := len(b.Frames) > 0 || len(b.Gaps) > 0 || len(b.Feed) > 0
			m.asleep = !took
			m.mu.Unlock()
			return took
		}
		m.mu.Unlock()
		// Without the lock: a ring holds its own while it wakes its readers.
		m.takeCursors(b)
		if len(b.Frames) > 0 || len(b.Gaps) > 0 || len(b.Feed) > 0 {
			return true
		}
	}
}

// takeOwn takes what waits in the mailbox itself, and the cursors that have
// something: what they are given from here on does not overtake an urgent frame
// that comes now. The lock is held.
func (m *Mailbox) takeOwn(b *Batch) {
	// A lane that is always full must not keep the next from its turn: while
	// others wait, answers get half of the batch, tracked deliveries half of the
	// rest.
	share := 1
	if m.tracked.frames > 0 || m.ready.len() > 0 {
		share = 2
	}
	b.takeAll(&m.urgent, 1)
	b.takeAll(&m.replies, share)
	if share = 1; m.ready.len() > 0 {
		share = 2
	}
	m.takeTracked(b, share)
	m.takeHungry(b)
	for m.ready.len() > 0 && len(b.cursors) < batchFrames {
		c := *m.ready.at(0)
		m.ready.drop(1)
		c.ready = false
		b.cursors = append(b.cursors, c)
	}
}

// takeCursors takes from the cursors of b, each an equal share of what is left.
func (m *Mailbox) takeCursors(b *Batch) {
	for i, c := range b.cursors {
		frames, bytes := b.room(len(b.cursors) - i)
		more := true
		if frames > 0 && bytes > 0 {
			var gap Gap
			b.shared, gap, more = c.read(b.shared[:0], frames, bytes)
			if gap.Dropped > 0 {
				b.Gaps = append(b.Gaps, gap)
			}
			m.takeShared(b, c)
		}
		if more {
			c.wake()
		}
	}
	clear(b.cursors)
	clear(b.shared)
	b.cursors, b.shared = b.cursors[:0], b.shared[:0]
}

// takeShared puts the frames that a cursor gave into the batch.
func (m *Mailbox) takeShared(b *Batch, c *Cursor) {
	for i := range b.shared {
		s := &b.shared[i]
		b.Frames = append(b.Frames, s.Frame)
		b.bytes += len(s.Frame)
		if ballot := s.Ballots[c]; ballot.Box != nil {
			m.mu.Lock()
			m.takeVoted(b, ballot)
			m.mu.Unlock()
		}
	}
}

// room says how many frames and bytes make up a share of what is left of the
// batch.
func (b *Batch) room(share int) (frames, bytes int) {
	return (batchFrames - len(b.Frames) + share - 1) / share, (batchBytes - b.bytes + share - 1) / share
}

func (b *Batch) takeAll(l *lane, share int) {
	for frames, bytes := b.room(share); l.frames > 0 && frames > 0 && bytes > 0; frames-- {
		bytes -= b.pop(l)
	}
}

func (b *Batch) pop(l *lane) int {
	frame, retired, _ := l.pop(b.retired)
	b.retired = retired
	b.Frames = append(b.Frames, frame)
	b.bytes += len(frame)
	return len(frame)
}

// takeTracked lets tracked deliveries out as far as the window reaches.
func (m *Mailbox) takeTracked(b *Batch, share int) {
	for frames, bytes := b.room(share); m.tracked.frames > 0 && frames > 0 && bytes > 0; frames-- {
		if m.opts.Mode == Client && m.unacked >= m.opts.MaxUnacked {
			return
		}
		m.highest++
		r := m.ledger.at(m.highest)
		r.flags |= recordSent
		if r.inbox != nil {
			r.inbox.sent = max(r.inbox.sent, r.position)
		}
		m.unacked++
		b.taken = append(b.taken, takenDelivery{id: m.highest, index: len(b.Frames)})
		bytes -= b.pop(&m.tracked)
		m.renumber(b, r)
	}
}

// takeHungry hands out the inboxes that wait for room once half of it is free.
func (m *Mailbox) takeHungry(b *Batch) {
	if m.deaf || len(m.hungry) == 0 || !m.halfEmpty() {
		return
	}
	kept := m.hungry[:0]
	for _, in := range m.hungry {
		if !m.room(in.need) || in.Worker && !m.willing(in.need) {
			kept = append(kept, in)
			continue
		}
		in.hungry, in.need = false, 0
		b.Feed = append(b.Feed, in)
	}
	clear(m.hungry[len(kept):])
	m.hungry = kept
}

// halfEmpty reports whether it is worth reading on: for a frame at a time it
// is only if nothing else is there to send.
func (m *Mailbox) halfEmpty() bool {
	if m.tracked.frames == 0 {
		return true
	}
	if m.opts.Mode == Client && m.ledger.len() > openRecords*m.opts.MaxUnacked/2 {
		return false
	}
	return m.tracked.bytes <= m.opts.QueueBytes/2 && m.tracked.frames <= maxQueueFrames/2
}

// Written records that the frames of b were handed to the stream at now, in ms of the gateway's running time. It matters in Auto mode.
func (m *Mailbox) Written(b *Batch, now int64) {
	if m.opts.Mode != Auto {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	next := 0
	for i, frame := range b.Frames {
		m.written += uint64(len(frame))
		if next < len(b.taken) && b.taken[next].index == i {
			if id := b.taken[next].id; id >= m.ledger.first {
				r := m.ledger.at(id)
				r.sentAt, r.sentEnd = now, m.written
			}
			next++
		}
	}
	m.castWritten(b)
}
