package delivery

// record is one delivery that is to be acknowledged.
type record struct {
	inbox    *Inbox
	position int64 // none while it has not been seen in the log
	sentAt   int64 // AUTO: the gateway's running time in ms when it was written
	sentEnd  uint64
	ahead    uint32 // by how much its id on the wire was to be, when it was queued
	attempts uint8
	flags    recordFlags
}

type recordFlags uint8

const (
	recordSent recordFlags = 1 << iota
	recordDone
	recordNacked // waits to be delivered again, under another id
	recordVotes  // its receiver has a vote in a tracked send
)

// NoPosition is the position before the first.
const NoPosition int64 = -1

const none = NoPosition

// ledger holds the deliveries from the first that is not done to the newest.
// Ids start at 1 and rise by one.
type ledger struct {
	ring  []record // length is a power of two
	first uint64   // id of the oldest record
	next  uint64   // id of the next delivery
}

func newLedger() ledger { return ledger{first: 1, next: 1} }

func (l *ledger) len() int { return int(l.next - l.first) }

func (l *ledger) add(r record) (id uint64) {
	if l.len() == len(l.ring) {
		l.grow()
	}
	id = l.next
	l.ring[id&uint64(len(l.ring)-1)] = r
	l.next++
	return id
}

func (l *ledger) grow() {
	size := max(16, 2*len(l.ring))
	ring := make([]record, size)
	for id := l.first; id < l.next; id++ {
		ring[id&uint64(size-1)] = l.ring[id&uint64(len(l.ring)-1)]
	}
	l.ring = ring
}

// at returns the record of an id that is not below first.
func (l *ledger) at(id uint64) *record { return &l.ring[id&uint64(len(l.ring)-1)] }

// trim forgets what is done at the old end.
func (l *ledger) trim() {
	for l.first < l.next && l.at(l.first).flags&recordDone != 0 {
		*l.at(l.first) = record{}
		l.first++
	}
}

// lowest returns the lowest known position of an inbox's deliveries that are
// not done.
func (l *ledger) lowest(in *Inbox) (position int64, ok bool) {
	for id := l.first; id < l.next; id++ {
		r := l.at(id)
		if r.inbox != in || r.flags&recordDone != 0 || r.position == none {
			continue
		}
		if !ok || r.position < position {
			position, ok = r.position, true
		}
	}
	return position, ok
}
