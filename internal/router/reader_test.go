package router

import (
	"fmt"
	"sync"
	"testing"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

// eager is a reading that is full at first, and whose pump has read everything
// and asks for more before the reader has finished with it.
type eager struct {
	p *partition

	mu       sync.Mutex
	position int64
	full     bool
	taken    int
	fed      chan struct{} // closed when it has caught up
}

func (r *eager) skims() (uint64, bool) { return 0, false }
func (r *eager) at() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.position
}

func (r *eager) take(*envelope.View, uint64, bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full {
		return false
	}
	r.taken++
	return true
}

func (r *eager) advance(position int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.position = max(r.position, position)
}

func (r *eager) starve(position int64) {
	r.advance(position)
	r.mu.Lock()
	again := r.full
	r.full = false
	r.mu.Unlock()
	if again {
		r.p.reader.add(r)
	}
}

func (r *eager) wants([]byte) bool              { return true }
func (r *eager) claim(who delivery.Feeder) bool { return true }
func (r *eager) leapOver(streams.Entry)         {}
func (r *eager) join()                          { close(r.fed) }
func (r *eager) tellDamaged(uint64)             {}
func (r *eager) lose(int64)                     {}

// A reading that was full was let go before the reader had taken it off its
// list: its pump was so quick that the reader then forgot it for ever.
func TestC8FullAndBackAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.RingBytes = 1 })
	a := w.agent("a", client(0))
	for range 3 {
		a.send("ag::w::i::b", "x", "r")
		a.answer()
	}
	w.settled()
	rd := &eager{p: w.r.parts[0], position: none, full: true, fed: make(chan struct{})}
	w.r.parts[0].reader.add(rd)
	w.until(func() (bool, <-chan struct{}) {
		select {
		case <-rd.fed:
			return true, nil
		default:
			return false, rd.fed
		}
	})
	if rd.taken == 0 {
		t.Fatal("nothing was handed on")
	}
}

// Who had caught up waited for its own pump to join the tail, and that pump
// may be stuck with a client that does not read: its mail came after all
// broadcasts.
func TestC8JoinsWithoutItsPump(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.RingBytes = 2000 })
	a := w.agent("a", client(0))
	for i := range 50 {
		a.send("ag::w::i::other", fmt.Sprint(i), fmt.Sprint(i))
		a.answer()
	}
	w.left("b")
	b, worker := w.agent("b", client(0)), w.worker("1", client(0))
	b.pump()
	if b.sub.inboxes[0].Fed() == delivery.FedByPump || w.r.stats.CatchUps.Load() == 0 && b.sub.inboxes[0].Fed() != delivery.FedByReader {
		t.Fatal("the reader does not serve it: the test shows nothing")
	}
	w.eventually(func() bool { return b.sub.inboxes[0].Fed() == delivery.FedByTail })
	w.eventually(func() bool { return worker.sub.worker.group.fed() == delivery.FedByTail })
	a.send("ag::w::i::b", "mail", "")
	b.wants("mail")
}
