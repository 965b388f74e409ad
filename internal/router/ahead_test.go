package router

import (
	"testing"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/streams"
)

// Delivery rule S1: who joins the tail at L gets what lies above L from it, also
// if its reader was ahead of the tail.
func TestS1ReaderAheadOfTheTail(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b, worker := w.agent("a", client(0)), w.agent("b", client(0)), w.worker("1", client(0))
	b.pump()
	p := w.r.parts[0]
	w.settled()
	p.tail.Close() // the tail stands still, the log goes on
	a.send("ag::w::i::b", "x", "")
	a.send("tb::w::i", "y", "r")
	a.answer()

	var ahead []streams.Entry
	for _, e := range w.log.Entries(0) {
		if endOf(e.Offset) > p.tailAt {
			ahead = append(ahead, e)
		}
	}
	for _, rd := range []reading{b.sub.inboxes[0], worker.sub.worker.group} {
		rd.claim(delivery.FedByReader)
		for _, e := range ahead {
			if _, ok := p.handOn(rd, e, nil); !ok {
				t.Fatal("there is no room")
			}
		}
		rd.starve(rd.at())
	}
	b.wants("x")
	worker.wants("y")
	b.pump()
	worker.pump()
	if at := b.sub.inboxes[0]; at.Fed() != delivery.FedByTail || worker.sub.worker.group.fed() != delivery.FedByTail {
		t.Fatal("they have not joined the tail: the test shows nothing")
	}
	b.ack(1)
	if at := b.sub.inboxes[0].watermark(); at != endOf(ahead[len(ahead)-1].Offset) {
		t.Fatalf("the watermark is %d before the tail has come so far", at)
	}
	for _, e := range ahead {
		p.handle(e)
	}
	b.quiet()
	worker.quiet()
}
