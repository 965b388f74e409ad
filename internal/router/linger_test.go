package router

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/envelope"
)

// sipping is a reading that has room for a few messages at a time, and whose pump asks
// for more from elsewhere each time.
type sipping struct {
	eager
	room, got int
	pumps     sync.WaitGroup
}

func (r *sipping) take(v *envelope.View, position uint64, _ bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.room == 0 {
		return false
	}
	r.room--
	r.got++
	r.position = int64(position)
	return true
}

func (r *sipping) starve(position int64) {
	r.advance(position)
	r.pumps.Go(func() {
		r.mu.Lock()
		r.room = 3
		r.mu.Unlock()
		r.p.reader.add(r)
	})
}

// Who is full again and again is served by one pass as long as nobody else
// wants one: to open a consumer costs more than to read.
func TestC8FullQueuesCostNoConsumers(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.RingBytes = 1 })
	w.r.linger = time.Minute
	a := w.agent("a", client(0))
	const messages = 100
	for i := range messages {
		a.send("ag::w::i::b", fmt.Sprint(i), "r")
		if i%7 == 0 {
			a.receipts(min(7, i)) // several to an entry
		}
	}
	w.settled()
	before := w.r.stats.CatchUps.Load()
	rd := &sipping{eager: eager{p: w.r.parts[0], position: none, fed: make(chan struct{})}, room: 3}
	w.r.parts[0].reader.add(rd)
	<-rd.fed
	rd.pumps.Wait()
	if got := rd.got; got < messages {
		t.Errorf("%d of %d messages came", got, messages)
	}
	// The ring of recent entries has the last one, and its rest takes another.
	if n := w.r.stats.CatchUps.Load() - before; n > 2 {
		t.Errorf("%d passes", n)
	}
}

// A pass that waits for a full reader makes way for who waits elsewhere in the
// log.
func TestC8LingeringMakesWay(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.RingBytes = 1 })
	w.r.linger = time.Hour
	a := w.agent("a", client(0))
	for i := range 10 {
		a.send("ag::w::i::b", fmt.Sprint(i), "r")
		a.answer()
	}
	w.settled()
	at := w.inLog("ag::w::i::b")
	reader := &w.r.parts[0].reader
	// Two that are full and never come back hold both passes.
	for i := range readerPasses {
		reader.add(&stuck{eager{p: w.r.parts[0], position: int64(at[6*i])}})
		w.eventually(func() bool {
			reader.mu.Lock()
			defer reader.mu.Unlock()
			p := reader.passes[i]
			return len(reader.waiting) == 0 && p != nil && p.lingers
		})
	}
	rd := &sipping{eager: eager{p: w.r.parts[0], position: int64(at[3]), fed: make(chan struct{})}, room: 1000}
	reader.add(rd)
	<-rd.fed
}

// stuck is a reading that is full and stays so.
type stuck struct{ eager }

func (*stuck) take(*envelope.View, uint64, bool) bool { return false }
func (r *stuck) starve(position int64)                { r.advance(position) }
