//go:build chaosdefect

package delivery

import (
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/aether-gateway/gateway/internal/envelope"
)

// defectVariable says what a build with the tag chaosdefect spoils: "lose",
// "double", "reorder" or "misdeliver", and after a colon one in how many
// messages. Without it nothing is spoiled. It exists to show that the fault
// harness sees what a broken gateway does; no other build has it.
const defectVariable = "AETHER_CHAOS_DEFECT"

const defectEvery = 10_000

var defect struct {
	sync.Mutex
	kind  string
	every int
	seen  int
	due   bool               // the next fitting message is spoiled
	held  map[*Mailbox]stash // reorder
	boxes map[*Mailbox]bool  // misdeliver
}

// stash is a message that the next one of its sender overtakes.
type stash struct {
	in     *Inbox
	source string
	frame  []byte // as if it came first
	late   []byte // as if it came second
	id     uint64
}

func init() {
	value := os.Getenv(defectVariable)
	_ = os.Unsetenv(defectVariable) // it is no setting
	kind, every, _ := strings.Cut(value, ":")
	defect.kind, defect.every = kind, defectEvery
	if n, err := strconv.Atoi(every); err == nil && n > 0 {
		defect.every = n
	}
	defect.held, defect.boxes = map[*Mailbox]stash{}, map[*Mailbox]bool{}
}

// tamper spoils one tracked delivery in so many. It reports whether it has
// queued the delivery, or lost it, in its own way. The mailbox's lock is held.
func (m *Mailbox) tamper(in *Inbox, v *envelope.View, r record) (id uint64, done bool) {
	defect.Lock()
	defer defect.Unlock()
	if defect.kind == "" {
		return 0, false
	}
	if defect.kind == "misdeliver" {
		defect.boxes[m] = true
	}
	if s, ok := defect.held[m]; ok {
		return m.overtake(s, in, v, r)
	}
	defect.seen++
	if defect.seen%defect.every == 0 {
		defect.due = true
	}
	if !defect.due {
		return 0, false
	}
	d := m.describe(r)
	switch defect.kind {
	case "lose":
		defect.due = false
		return 0, true // to the log it is as if it was done
	case "double":
		defect.due = false
		m.append(v, r)
		return m.append(v, r), true
	case "misdeliver":
		for other := range defect.boxes {
			if other != m && !other.closed {
				defect.due = false
				frame := v.AppendFrame(nil, envelope.Delivery{Position: d.Position, Known: d.Known})
				go other.Reply(frame) // not under two mailboxes' locks
				break
			}
		}
	case "reorder":
		if m.opts.Mode != Client {
			return 0, false
		}
		defect.due = false
		s := stash{in: in, source: string(v.Source) + string(v.Topic), frame: v.AppendFrame(nil, d), id: m.ledger.add(r)}
		d.ID++
		s.late = v.AppendFrame(nil, d)
		defect.held[m] = s
		return s.id, true
	}
	return 0, false
}

// overtake queues a message and the one that was held before it: in the wrong
// order if both are of one sender, else in the right one.
func (m *Mailbox) overtake(s stash, in *Inbox, v *envelope.View, r record) (id uint64, done bool) {
	delete(defect.held, m)
	if s.in != in || s.source != string(v.Source)+string(v.Topic) {
		defect.due = true // try the next one
		m.tracked.pushFrame(s.frame)
		return m.append(v, r), true
	}
	d := m.describe(r)
	d.ID = s.id
	m.tracked.push(v.FrameSize(d), func(dst []byte) []byte { return v.AppendFrame(dst, d) })
	m.tracked.pushFrame(s.late)
	m.signal()
	return m.ledger.add(r), true
}

func (m *Mailbox) append(v *envelope.View, r record) uint64 {
	d := m.describe(r)
	m.tracked.push(v.FrameSize(d), func(dst []byte) []byte { return v.AppendFrame(dst, d) })
	m.signal()
	return m.ledger.add(r)
}

// describe says how the next delivery is written.
func (m *Mailbox) describe(r record) envelope.Delivery {
	d := envelope.Delivery{ID: m.ledger.next, Redelivered: r.attempts > 0}
	if r.position != none {
		d.Position, d.Known = uint64(r.position), true
	}
	return d
}
