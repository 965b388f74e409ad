package delivery

// Watermark returns the highest position up to which everything is done, if
// the log was handed on up to at (S5).
func (in *Inbox) Watermark(at int64) (position int64) {
	m := in.box
	m.mu.Lock()
	defer m.mu.Unlock()
	if in.feeder != FedByTail || at < in.at {
		at = in.at
	}
	if in.cut {
		at = min(at, in.cutAt)
	}
	if lowest, ok := m.ledger.lowest(in); ok && lowest-1 < at {
		return lowest - 1
	}
	return at
}

// Due reports whether the inbox has something worth committing: deliveries
// that became done since the last call.
func (in *Inbox) Due() bool {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	due := in.moved
	in.moved = false
	return due
}

// Committing records what is handed to the store, and reports whether that is
// more than was handed to it before. For the last time it is to be more than
// the store has taken: what is on its way may fail.
func (in *Inbox) Committing(position int64, last bool) bool {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	if position <= in.saved || !last && position <= in.commit {
		return false
	}
	in.commit = position
	return true
}

// Committed records that the store has taken what was handed to it.
func (in *Inbox) Committed() {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	in.saved = in.commit
}

// Saved returns the position that the store has, [NoPosition] if none.
func (in *Inbox) Saved() int64 {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	return in.saved
}

// Renew makes the position due although nothing became done.
func (in *Inbox) Renew() {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	in.moved = true
}

// SetSaved records a position that was stored for the inbox before it was fed.
func (in *Inbox) SetSaved(position int64) {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	in.saved, in.commit = position, position
}

// Uncommitted records that the store has not taken what was handed to it.
func (in *Inbox) Uncommitted() {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	in.commit, in.moved = in.saved, true
}

// Handed returns the highest position of a delivery that went out, of this
// session or of those before it, if that is above the watermark: up to there
// messages will come again. It is [NoPosition] otherwise.
func (in *Inbox) Handed(watermark int64) int64 {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	if highest := max(in.Repeats, in.sent); highest > watermark {
		return highest
	}
	return none
}

// HandedLive returns the highest seq of a live delivery, of this session or of
// those before it, that the log has not shown, so that it has no position: up to
// there messages of this gateway may come again. seen is what the tail has
// shown. It is 0 if there is none.
func (in *Inbox) HandedLive(seen uint64) uint64 {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	highest := in.RepeatsSeq
	for i := range in.expected.len() {
		if e := in.expected.at(i); e.id != 0 && e.id <= in.box.highest {
			highest = max(highest, e.seq)
		}
	}
	if highest <= seen && in.expected.len() == 0 {
		return 0
	}
	return highest
}

// Stop makes the inbox take nothing more that is new. Live deliveries are
// still given their positions (S7).
func (in *Inbox) Stop() {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	in.stopped = true
	in.held, in.heldSize = nil, 0
}

// Expecting reports whether a live delivery has yet to be seen in the log. seen
// is what the tail has shown: what it has passed over was never stored.
func (in *Inbox) Expecting(seen uint64) bool {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	n := in.expected.len()
	return n > 0 && (in.feeder != FedByTail || in.expected.at(n-1).seq > seen)
}

// Behind reports whether live deliveries have yet to be seen in the log and
// nobody reads it for the inbox.
func (in *Inbox) Behind() bool {
	in.box.mu.Lock()
	defer in.box.mu.Unlock()
	return in.feeder == FedByNobody && in.expected.len() > 0
}

// Unfinished returns the deliveries of an inbox that are not done, oldest
// first: position and how often each was delivered.
func (in *Inbox) Unfinished() []Unfinished { return in.unfinished(false) }

// Abandon is Unfinished for an inbox whose session has ended: they count as
// over here, so that each goes to another worker once, whoever takes it back
// first (see [Mailbox.TakeBack]), and what the client still says of them is
// not heard.
func (in *Inbox) Abandon() []Unfinished { return in.unfinished(true) }

func (in *Inbox) unfinished(abandon bool) []Unfinished {
	m := in.box
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []Unfinished
	for id := m.ledger.first; id < m.ledger.next; id++ {
		r := m.ledger.at(id)
		if r.inbox == in && r.flags&recordDone == 0 && r.position != none {
			list = append(list, r.unfinished())
			if abandon {
				m.over(r)
			}
		}
	}
	if abandon {
		m.ledger.trim()
	}
	return list
}

// Unfinished is a delivery that was not done when its session ended.
type Unfinished struct {
	Position uint64
	Attempts uint8
}

// unfinished counts a delivery that went out as one more attempt.
func (r *record) unfinished() Unfinished {
	u := Unfinished{uint64(r.position), r.attempts}
	if r.flags&recordSent != 0 {
		u.Attempts++
	}
	return u
}
