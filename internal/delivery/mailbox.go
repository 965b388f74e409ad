package delivery

import (
	"math"
	"sync"

	"github.com/aether-gateway/gateway/internal/envelope"
)

// AckMode says who declares a delivery done.
type AckMode uint8

const (
	// Auto is for clients that cannot acknowledge: delivery rule A.
	Auto AckMode = iota
	// Client waits for the client's acknowledgement.
	Client
)

// Options bounds a [Mailbox].
type Options struct {
	Mode AckMode
	// MaxUnacked is how many tracked deliveries may be out and not
	// acknowledged in Client mode; default 256.
	MaxUnacked int
	// QueueBytes is how much may wait of tracked deliveries; a single larger
	// frame passes an empty lane. Default 1 MiB.
	QueueBytes int
	// ControlBytes is how much may wait of receipts and errors before the
	// client counts as one that does not read; default 8 MiB.
	ControlBytes int
	// Lagged, if set, is told of a topic whose slow readers are to be ended, once
	// the session is one. It is called with a ring's lock held, and must not wait.
	Lagged func(topic string)
}

const (
	defaultMaxUnacked   = 256
	defaultQueueBytes   = 1 << 20
	defaultControlBytes = 8 << 20

	maxQueueFrames = 4096
	// openRecords is how far deliveries may run ahead of the first that is not
	// done, as a multiple of MaxUnacked (delivery rule S6).
	openRecords = 16
	// autoRecords bounds the ledger in Auto mode, where bytes and time move it.
	autoRecords = 1 << 17
)

func (o Options) withDefaults() Options {
	if o.MaxUnacked <= 0 {
		o.MaxUnacked = defaultMaxUnacked
	}
	if o.QueueBytes <= 0 {
		o.QueueBytes = defaultQueueBytes
	}
	if o.ControlBytes <= 0 {
		o.ControlBytes = defaultControlBytes
	}
	return o
}

// Mailbox is all that waits for one session. Any goroutine may fill it; one,
// the pump, empties it.
type Mailbox struct {
	opts Options
	wake chan struct{} // capacity 1: a wake-up is never lost and never waited for

	mu     sync.Mutex
	closed bool
	deaf   bool // takes no deliveries any more
	asleep bool
	// Urgent frames (errors, signals, heartbeats) go first, then replies
	// (receipts), then deliveries. The first two end the session when they
	// overflow; a tracked delivery is left in the log.
	urgent, replies, tracked lane
	// ready are the cursors that have something, in the order in which they get
	// their turn; each stands in it once at most.
	ready queue[*Cursor]

	ledger  ledger
	votes   votes
	unacked int      // sent and not done
	highest uint64   // the last record of the ledger that was taken
	upTo    uint64   // the last cumulative acknowledgement, as on the wire
	upToRec uint64   // the last record of the ledger that it covers
	hungry  []*Inbox // inboxes that nobody feeds, until there is room

	written uint64 // bytes given to the stream, for Auto mode
}

// Gap is what a slow reader lost of a shared topic.
type Gap struct {
	Topic          string
	Dropped, Bytes uint64
}

// NewMailbox returns an empty mailbox.
func NewMailbox(o Options) *Mailbox {
	return &Mailbox{opts: o.withDefaults(), wake: make(chan struct{}, 1), ledger: newLedger()}
}

// Mode returns the mailbox's acknowledgement mode.
func (m *Mailbox) Mode() AckMode { return m.opts.Mode }

// Wake is signalled when there is something to take. It serves the pump.
func (m *Mailbox) Wake() <-chan struct{} { return m.wake }

// signal wakes the pump if it sleeps. The lock is held.
func (m *Mailbox) signal() {
	if !m.asleep {
		return
	}
	m.asleep = false
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Urgent queues a frame that goes before all others. It reports false if the
// client reads so little that it must be ended.
func (m *Mailbox) Urgent(frame []byte) bool { return m.push(&m.urgent, frame) }

// Reply queues the answer to something that the client asked.
func (m *Mailbox) Reply(frame []byte) bool { return m.push(&m.replies, frame) }

// Unread returns how many bytes of what is urgent and of replies wait to be
// taken.
func (m *Mailbox) Unread() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.urgent.bytes + m.replies.bytes
}

func (m *Mailbox) push(l *lane, frame []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return true
	}
	if m.urgent.bytes+m.replies.bytes+len(frame) > m.opts.ControlBytes {
		return false
	}
	l.pushFrame(frame)
	m.signal()
	return true
}

// room reports whether a tracked frame fits.
func (m *Mailbox) room(size int) bool {
	if !m.laneRoom(size) {
		return false
	}
	if m.opts.Mode == Auto {
		return m.ledger.len() < autoRecords
	}
	return m.ledger.len() < openRecords*m.opts.MaxUnacked
}

func (m *Mailbox) laneRoom(size int) bool {
	return m.tracked.frames == 0 ||
		m.tracked.bytes+size <= m.opts.QueueBytes && m.tracked.frames < maxQueueFrames
}

// Roomy reports whether there is room for a small delivery at least.
func (m *Mailbox) Roomy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.closed && !m.deaf && m.laneRoom(0)
}

// offer queues a tracked delivery. The lock is held.
func (m *Mailbox) offer(in *Inbox, v *envelope.View, position int64, attempts uint8) (id uint64, ok bool) {
	if !m.room(0) {
		return 0, false
	}
	if id, ok = m.queue(in, v, position, attempts); !ok {
		in.need = FrameBound(v)
	}
	return id, ok
}

// FrameBound returns the size of a message's frame at most.
func FrameBound(v *envelope.View) int {
	return v.FrameSize(envelope.Delivery{ID: math.MaxUint64, Position: math.MaxUint64, Known: true, Redelivered: true})
}

// queue is offer for a delivery that replaces another: no hole stops it (S6).
func (m *Mailbox) queue(in *Inbox, v *envelope.View, position int64, attempts uint8) (id uint64, ok bool) {
	ahead := m.votes.ahead()
	d := envelope.Delivery{ID: m.ledger.next + ahead, Redelivered: attempts > 0}
	if position != none {
		d.Position, d.Known = uint64(position), true
	}
	size := v.FrameSize(d)
	if m.deaf || !m.laneRoom(size) {
		return 0, false
	}
	entry := record{inbox: in, position: position, attempts: attempts, ahead: uint32(ahead)}
	if id, done := m.tamper(in, v, entry); done {
		return id, true
	}
	id = m.ledger.add(entry)
	m.register(in, v, id)
	m.tracked.push(size, func(dst []byte) []byte { return v.AppendFrame(dst, d) })
	m.signal()
	return id, true
}

// OnlyAnswers drops the deliveries that wait, tracked ones undone, so that an
// ending session sends what was asked for and nothing more.
func (m *Mailbox) OnlyAnswers() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tracked.clear()
	m.ready.clear()
	m.hungry = nil
	m.deaf = true
}

// Close drops what waits and accepts nothing more. The ledger stays, for the
// last watermark.
func (m *Mailbox) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	m.urgent.clear()
	m.replies.clear()
	m.tracked.clear()
	m.ready.clear()
	m.hungry = nil
	m.asleep = true
	m.signal()
}

// Load returns how much tracked work the session has, and whether it would
// take more of this size in bytes. It serves the choice between competing
// workers.
func (m *Mailbox) Load(size int) (load int, willing bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.load(), m.willing(size)
}

func (m *Mailbox) load() int {
	if m.opts.Mode == Client {
		return m.tracked.frames + m.unacked
	}
	return m.tracked.frames
}

func (m *Mailbox) willing(size int) bool {
	return !m.closed && !m.deaf && m.load() < m.opts.MaxUnacked && m.room(size)
}
