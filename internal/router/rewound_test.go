package router

import (
	"fmt"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// entries returns how many entries the log holds.
func (w *world) entries() int { return len(w.log.Entries(0)) }

// recreated waits until a session was told that its log is another one.
func (s *session) recreated() {
	s.w.t.Helper()
	s.w.until(func() (bool, <-chan struct{}) {
		for s.pump() {
		}
		again := make(chan struct{})
		time.AfterFunc(10*time.Millisecond, func() { close(again) })
		for _, g := range s.told() {
			if g.Reason == GapRecreated {
				return true, again
			}
		}
		return false, again
	})
}

// Delivery rule C2: a log that is deleted and made anew under a running gateway.
// Its offsets begin again far below where the tail waits, which showed nothing
// any more, for ever. Readers are told, get what is stored from then on, once,
// and what they acknowledge counts.
func TestC2LogMadeAnew(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(100)), w.agent("b", client(100))
	for i := range 100 {
		a.send(b.name, fmt.Sprint("old ", i), "")
		b.wants(fmt.Sprint("old ", i))
		w.settled() // an entry each
	}
	b.ack(100)
	w.until(func() (bool, <-chan struct{}) {
		again := make(chan struct{})
		time.AfterFunc(10*time.Millisecond, func() { close(again) })
		row := w.store.at(b.name)
		return row != nil && row.Position > uint64(streams.At(100, 0)), again
	})

	w.log.Lose(0, 0)
	for i := range 5 {
		a.send(b.name, fmt.Sprint("new ", i), "")
	}
	b.recreated()
	for i := range 5 {
		b.wants(fmt.Sprint("new ", i))
	}
	a.send(b.name, "later", "")
	b.wants("later")
	b.quiet()
	b.ack(106)
	w.settled()
	b.leave()
	if row := w.store.at(b.name); row == nil || row.Position > uint64(streams.At(99, 0)) {
		t.Errorf("the position is still that of the old log: %+v", row)
	}

	a.send(b.name, "last", "")
	again := w.agent("b", client(100))
	again.wants("last")
	again.quiet()
	for _, g := range again.told() {
		t.Errorf("the next session is told %+v", g)
	}
}

// Delivery rules C2, C3: what is sent to an absent address after its log was made
// anew is not lost because the address was noted in the old one.
func TestC2NotedInTheOldLog(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(100)), w.agent("b", client(100))
	for i := range 50 {
		a.send(b.name, fmt.Sprint("old ", i), "")
		b.wants(fmt.Sprint("old ", i))
		w.settled()
	}
	a.send(absent, "lost", "r")
	a.receipts(1)
	w.settled()
	w.log.Lose(0, 0)
	a.send(absent, "kept", "r") // its note is that of the old log
	a.answer()
	b.recreated()
	a.send(absent, "later", "r")
	a.receipts(1)
	w.agent("absent", client(0)).wants("kept", "later")
}

// The same while the note is on its way: it is asked for again, and not raised
// past what the tail has shown of the new log.
func TestC2NotedWhileTheLogIsMadeAnew(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	release := w.holdNotes()
	a.send(absent, "1", "1")
	w.eventually(func() bool { return w.store.noteStatements() == 1 })
	p := w.r.parts[0]
	p.mu.Lock()
	p.renote(0)
	p.mu.Unlock()
	release()
	a.receipts(1)
	w.settled()
	if note, ok := w.store.noteOf(absent); !ok || note != 0 {
		t.Errorf("note at %d, %v", note, ok)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.absent.own) + len(p.absent.raises); n != 0 {
		t.Errorf("%d notes are to be raised", n)
	}
}

// Delivery rule C2: a broker that comes back without what it had not written to
// its disk gives those offsets out again. The tail passed over what came there.
func TestC2LogLostItsEnd(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(100)), w.agent("b", client(100))
	for i := range 20 {
		a.send(b.name, fmt.Sprint("old ", i), "")
		b.wants(fmt.Sprint("old ", i))
		w.settled()
	}
	b.ack(20)
	w.log.Lose(0, w.entries()-3)
	for i := range 5 {
		a.send(b.name, fmt.Sprint("new ", i), "")
		w.until(func() (bool, <-chan struct{}) { // an entry each
			again := make(chan struct{})
			time.AfterFunc(time.Millisecond, func() { close(again) })
			return w.r.parts[0].writer.Connected(), again
		})
	}
	b.recreated()
	for i := range 5 {
		b.wants(fmt.Sprint("new ", i))
	}
	w.settled()
	b.quiet()
}
