package router

import (
	"fmt"
	"sync"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/streams"
)

const absent = "ag::w::i::absent"

// inLog returns where the messages to an address lie.
func (w *world) inLog(address string) (positions []uint64) {
	for _, e := range w.log.Entries(0) {
		it := streams.Open(e.Data)
		for it.Next() {
			var v envelope.View
			if v.Parse(it.Bytes()) == nil && string(v.Topic) == address && v.Kind == envelope.Message {
				positions = append(positions, uint64(streams.At(e.Offset, it.Index())))
			}
		}
	}
	return positions
}

// holdNotes keeps statements for notes back until the result is called.
func (w *world) holdNotes() (release func()) {
	gate := make(chan struct{})
	w.store.set(func() { w.store.noteGate = gate })
	var once sync.Once
	release = func() {
		once.Do(func() {
			w.store.set(func() { w.store.noteGate = nil })
			close(gate)
		})
	}
	w.t.Cleanup(release)
	return release
}

func (s *session) unavailable(request string) {
	s.w.t.Helper()
	if e := s.answer().GetError(); e.GetCode() != "ERR_UNAVAILABLE" || e.GetRequestId() != request || !e.GetRetryable() {
		s.w.t.Fatalf("%s got %v", s.name, e)
	}
}

// Delivery rule C3: the note is stored before the message is given to the log,
// not above it; sends to who is connected do not wait for it.
func TestC3NoteBeforeFirstPublish(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	release := w.holdNotes()
	a.send(absent, "1", "1")
	a.send(absent, "2", "2")
	a.send(b.name, "other", "other")
	b.wants("other")
	if got := a.receipts(1); got != "other" {
		t.Fatalf("answered: %s", got)
	}
	w.eventually(func() bool { return w.store.noteStatements() > 0 })
	if at := w.inLog(absent); len(at) != 0 {
		t.Fatalf("published at %d before the note", at)
	}
	if _, ok := w.store.noteOf(absent); ok {
		t.Fatal("a note is there: the test shows nothing")
	}
	release()
	if got := a.receipts(2); got != "1 2" {
		t.Fatalf("answered: %s", got)
	}
	at := w.inLog(absent)
	if note, ok := w.store.noteOf(absent); !ok || len(at) != 2 || note > at[0] {
		t.Fatalf("note at %d, %v, messages at %d", note, ok, at)
	}
	if n := w.r.stats.Notes.Load(); n != 1 {
		t.Errorf("%d notes were stored", n)
	}
}

// Delivery rule C3: while a statement is on its way the next one gathers.
func TestC3OneStatementForAllThatWait(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	release := w.holdNotes()
	a.send(absent, "first", "first")
	w.eventually(func() bool { return w.store.noteStatements() == 1 })
	for i := range 100 {
		a.send(fmt.Sprintf("ag::w::i::n%d", i), "x", fmt.Sprint(i))
	}
	release()
	a.receipts(101)
	w.store.mu.Lock()
	defer w.store.mu.Unlock()
	if w.store.statements != 2 || len(w.store.notes) != 101 {
		t.Fatalf("%d statements, %d notes", w.store.statements, len(w.store.notes))
	}
}

// Delivery rule C3: the store is away. Sends to who is absent are refused, in
// time; others go on; when it is back nothing is left of it.
func TestC3StoreAway(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	w.store.fail(true)
	a.send(absent, "1", "1")
	a.unavailable("1")
	a.send(b.name, "x", "x")
	a.receipts(1)
	b.wants("x")
	w.store.fail(false)
	a.send(absent, "2", "2")
	a.receipts(1)
	if n := len(w.inLog(absent)); n != 1 {
		t.Fatalf("%d messages are stored", n)
	}
	w.eventually(func() bool { return a.sender.waiting.Load() == 0 }) // just after the receipt
}

// Delivery rule C3: the store does not answer. What waits is refused, also what
// came while the first statement was on its way.
func TestC3StoreHangs(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.PublishTimeout = 500 * time.Millisecond })
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	defer w.holdNotes()()
	a.send(absent, "1", "1")
	w.eventually(func() bool { return w.store.noteStatements() > 0 })
	a.send("ag::w::i::other", "2", "2")
	a.unavailable("1")
	a.unavailable("2")
	a.send(b.name, "x", "x")
	a.receipts(1)
}

// Delivery rule C3: the gateway remembers that it noted an address, until the
// note may be gone.
func TestC3Remembers(t *testing.T) {
	t.Parallel()
	clock := newClock()
	w := setup(t, func(o *Options) { o.Now, o.Presence = clock.now, &crowd{} })
	a := w.agent("a", client(0))
	statements := w.store.noteStatements
	for i := range 5 {
		a.send(absent, fmt.Sprint(i), "r")
		a.receipts(1)
	}
	if n := statements(); n != 1 {
		t.Fatalf("%d statements", n)
	}
	// Before it is needed it is repeated, and nobody waits for that.
	clock.add(presence.Staleness/2 + 1)
	release := w.holdNotes()
	a.send(absent, "at once", "r")
	a.receipts(1)
	release()
	w.eventually(func() bool { return statements() == 2 })
	clock.add(presence.Staleness + 1)
	release = w.holdNotes()
	a.send(absent, "later", "r")
	w.eventually(func() bool { return statements() == 3 })
	if n := len(w.inLog(absent)); n != 6 {
		t.Fatalf("%d messages are stored, without a note", n)
	}
	release()
	a.receipts(1)
	// Who comes and goes here makes it forget.
	b := w.agent("absent", client(0))
	b.leave()
	a.send(absent, "again", "r")
	a.receipts(1)
	if n := statements(); n != 4 {
		t.Fatalf("%d statements", n)
	}
}

// Delivery rule C3: the tail raises a note to the first message behind it, if
// the note is this gateway's and unchanged.
func TestC3RaisesItsOwnNote(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.log.Stall(true) // so that others' messages come before
	for i := range 20 {
		a.send(b.name, fmt.Sprint(i), "")
	}
	a.send(absent, "1", "1")
	w.eventually(func() bool { _, ok := w.store.noteOf(absent); return ok })
	first, _ := w.store.noteOf(absent)
	w.log.Stall(false)
	a.receipts(1)
	at := w.inLog(absent)[0]
	if first >= at {
		t.Fatalf("noted at %d, stored at %d: the test shows nothing", first, at)
	}
	w.eventually(func() bool { note, _ := w.store.noteOf(absent); return note == at })

	// Somebody else's is left alone.
	w.store.set(func() { w.store.notes["ag::w::i::theirs"] = 1 })
	a.send("ag::w::i::theirs", "2", "2")
	a.receipts(1)
	w.settled()
	if note, _ := w.store.noteOf("ag::w::i::theirs"); note != 1 {
		t.Fatalf("raised to %d", note)
	}
	// So is one that has been lowered meanwhile.
	w.log.Stall(true)
	a.send("ag::w::i::lowered", "3", "3")
	w.eventually(func() bool { _, ok := w.store.noteOf("ag::w::i::lowered"); return ok })
	w.store.set(func() { w.store.notes["ag::w::i::lowered"] = 2 })
	w.log.Stall(false)
	a.receipts(1)
	w.settled()
	if note, _ := w.store.noteOf("ag::w::i::lowered"); note != 2 {
		t.Fatalf("raised to %d", note)
	}
}

// Delivery rule C3: another gateway's message that the tail shows while the note
// is on its way to the store is the first one behind it. The note is not raised
// past it, neither to the first message of our own nor with time.
func TestC3OthersFirstMessageWhileNoting(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"a message": 0, "the clock": raiseAfter + time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			clock := newClock()
			w := setup(t, func(o *Options) { o.Now, o.RingBytes = clock.now, 500 })
			a, b := w.agent("a", client(0)), w.agent("b", client(0))
			w.warm(a, b)
			b.ack(1)
			release := w.holdNotes()
			a.send(absent, "ours", "r")
			w.eventually(func() bool { return w.store.noteStatements() == 1 })
			shown := w.r.parts[0].nextEntry()
			w.stamped(absent, "theirs", clock.now())
			<-shown
			if wait > 0 {
				w.r.parts[0].refuseOverdue(clock.now().Add(time.Hour)) // nothing of ours follows
			}
			before := w.r.stats.Notes.Load()
			release()
			w.eventually(func() bool { return w.r.stats.Notes.Load() > before })
			a.answer()
			w.settled()
			clock.add(wait)
			w.r.parts[0].tick(clock.now())
			a.send("ag::w::i::later", "x", "r") // a statement later than a raise would be
			a.receipts(1)
			w.traffic(a, b, 20)
			first := w.inLog(absent)[0]
			if note, ok := w.store.noteOf(absent); !ok || note > first {
				t.Errorf("note at %d, %v; the first message is at %d", note, ok, first)
			}
			w.agent("absent", client(0)).wants("theirs")
		})
	}
}

// A note whose message was never stored is raised to where the tail is, so that
// it does not look like lost mail one day.
func TestC3RaisesWithoutAMessage(t *testing.T) {
	t.Parallel()
	clock := newClock()
	w := setup(t, func(o *Options) { o.Now, o.PublishTimeout = clock.now, 200*time.Millisecond })
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.log.Refuse(true)
	w.log.Drop()
	a.send(absent, "lost", "lost")
	w.eventually(func() bool { _, ok := w.store.noteOf(absent); return ok })
	if a.answer().GetError() == nil {
		t.Fatal("stored")
	}
	w.log.Refuse(false)
	note, _ := w.store.noteOf(absent)
	w.eventually(func() bool {
		return a.sender.Send(&aetherv1.SendMessage{TargetTopic: b.name, Payload: []byte("x")}) == nil
	})
	b.wants("x")
	clock.add(raiseAfter + time.Second)
	w.eventually(func() bool { now, _ := w.store.noteOf(absent); return now > note })
}

// crowd is presence with others in it.
type crowd struct {
	presence.Gateway

	mu      sync.Mutex
	others  map[string]bool
	own     map[string]bool
	certain bool
}

func (*crowd) Fence() *presence.Fence { return nil }

func (c *crowd) Held(name string) (held, certain bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.others[name] || c.own[name], c.certain
}

func (c *crowd) Lookup(name string) (presence.Entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.own[name] {
		return presence.Entry{Instance: "self"}, true
	}
	return presence.Entry{Instance: "other"}, c.others[name]
}

func (c *crowd) Self() presence.Instance { return presence.Instance{ID: "self"} }

// Delivery rules C3, C7: who is surely held elsewhere is not noted; who may be
// is; and so is one whose lease is here, but who has not said where it begins.
func TestC7OnlyTheSurelyHeldAreNotNoted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]*crowd{
		"held":      {others: map[string]bool{absent: true}, certain: true},
		"uncertain": {others: map[string]bool{absent: true}},
		"here":      {own: map[string]bool{absent: true}, certain: true},
		"nobody":    {certain: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, func(o *Options) { o.Presence = c })
			a := w.agent("a", client(0))
			a.send(absent, "1", "1")
			a.receipts(1)
			if _, noted := w.store.noteOf(absent); noted == (name == "held") {
				t.Fatalf("noted: %v", noted)
			}
		})
	}
}

// Delivery rule C3: what has to wait and what has not stays in order, also when
// the receiver comes in between.
func TestC3OrderWhenTheReceiverComes(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	release := w.holdNotes()
	a.send(absent, "1", "1")
	a.send(absent, "2", "2")
	b := w.agent("absent", client(0)) // it reads the address now: nobody waits any more
	a.send(absent, "3", "3")
	b.wants("1", "2", "3")
	release()
	a.receipts(3)
}

// Delivery rules C3, P6: a repeat of a send that waits for a note is the same
// send.
func TestC3RepeatOfAWaitingSend(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	a.sendAs(absent, "warm", "id0")
	a.receipts(1)
	release := w.holdNotes()
	other := "ag::w::i::other"
	a.sendAs(other, "1", "id1")
	a.sendAs(other, "1", "id1")
	release()
	a.receipts(2)
	if at := w.inLog(other); len(at) != 1 {
		t.Fatalf("stored at %d", at)
	}
}

// Delivery rules C3, P5: what a session has waiting when it loses its lease is
// answered, and not stored.
func TestC3SenderEnds(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	release := w.holdNotes()
	a.send(absent, "1", "1")
	a.send("ag::w::i::other", "2", "2")
	a.sender.Drop()
	<-a.sender.Settled()
	release()
	b := w.agent("b", client(0))
	b.send(absent, "3", "3")
	b.receipts(1)
	if n := len(w.inLog(absent)) + len(w.inLog("ag::w::i::other")); n != 1 {
		t.Fatalf("%d messages are stored", n)
	}
}

// Delivery rule C3: an engine's mailbox is an address like others; one that
// reads all of them has a note of its own.
func TestC3EventAddresses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	event := func(text string) {
		t.Helper()
		err := a.sender.Send(&aetherv1.SendMessage{TargetTopic: "event::w", Payload: []byte(text), RequestId: text, MessageType: aetherv1.MessageType_MESSAGE_TYPE_EVENT})
		if err != nil {
			t.Fatal(err)
		}
		a.receipts(1)
	}
	event("1")
	for _, key := range []string{"event::w", anyEventKey(0)} {
		w.eventually(func() bool { note, ok := w.store.noteOf(key); return ok && note == w.inLog("event::w")[0] })
	}
	all := w.engine(acl.All())
	all.wants("1")
	event("2") // held
	all.wants("2")
	all.ack(1)
	all.leave() // 2 is not done
	some := w.engine(acl.Workspaces("w"))
	some.wants("2")
	some.ack(1)
	some.leave()
	event("3") // noted for both again
	all = w.engine(acl.All())
	all.wants("3")
	all.ack(1)
	w.settled()
	all.quiet()
}

// Delivery rule C3 costs a send to who is connected nothing.
func TestC3NoCostForTheConnected(t *testing.T) {
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	a.send(absent, "1", "1")
	a.receipts(1)
	p := w.r.parts[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, address := range []string{b.name, absent} {
		if n := testing.AllocsPerRun(100, func() {
			if p.absenceGate(address, "w") != nil {
				t.Error("it would wait")
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", address, n)
		}
	}
}

// What is remembered of absent addresses is bounded.
func TestC3Bounded(t *testing.T) {
	t.Parallel()
	w := setup(t)
	p := w.r.parts[0]
	p.mu.Lock()
	for i := range maxAbsent + 10 {
		a := p.addAbsence(fmt.Sprint(i))
		a.noted = w.r.now()
		p.watchOwn(a.address, uint64(i))
	}
	if len(p.absent.known) > maxAbsent || len(p.absent.own) > maxAbsent {
		t.Errorf("%d known, %d own", len(p.absent.known), len(p.absent.own))
	}
	for i := range maxRaises + 10 {
		p.raise(fmt.Sprint(i), ownNote{uint64(i), p.r.now()}, int64(i+1))
	}
	if n := len(p.absent.raises); n > maxRaises {
		t.Errorf("%d raises", n)
	}
	p.absent = absences{}
	p.mu.Unlock()
}

// So is what is asked of the store: while it does not answer others wait for
// room, and go on when there is some, or are refused with the rest.
func TestC3AsksBounded(t *testing.T) {
	t.Parallel()
	for name, answers := range map[string]bool{"answers": true, "is away": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, func(o *Options) { o.PublishTimeout = time.Minute }) // so that nothing is refused for slowness
			a := w.agent("a", client(0))
			release := w.holdNotes()
			p := w.r.parts[0]
			p.mu.Lock()
			for i := range maxAbsent {
				p.absenceGate(fmt.Sprintf("ag::w::i::n%d", i), "w")
			}
			if n := len(p.absent.asked); n != maxAsked {
				t.Errorf("%d notes are asked for", n)
			}
			if n := len(p.absent.queue) + len(p.absent.known); n > 2*maxAsked {
				t.Errorf("%d addresses are remembered", n)
			}
			p.mu.Unlock()
			a.send(absent, "x", "x")
			if !answers {
				w.store.fail(true)
			}
			release()
			if !answers {
				a.unavailable("x")
				return
			}
			a.receipts(1)
			if _, ok := w.store.noteOf(absent); !ok {
				t.Error("published without a note")
			}
		})
	}
}

// clock is a wall clock that is moved by hand.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Now()} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}
