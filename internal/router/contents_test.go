package router

import (
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

func hashOf(address string) uint64 { return maphash.String(hashSeed, address) }

// entryFor makes an entry with a message for each address.
func entryFor(offset uint64, addresses ...string) streams.Entry {
	data := streams.BeginEntry(nil)
	for i, a := range addresses {
		e := envelope.Envelope{Topic: a, Source: "ag::w::i::a", Payload: make([]byte, 100), Origin: 1, Seq: uint64(i + 1)}
		data = streams.AppendEnvelope(data, e.Append(nil))
	}
	return streams.Entry{Offset: offset, Data: data}
}

// An entry never lacks what it has; what it has not it lacks nearly always; and
// one that cannot be read whole lacks nothing.
func TestContents(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	wrong, asked := 0, 0
	for range 200 {
		addresses := make([]string, 1+r.IntN(300))
		for i := range addresses {
			addresses[i] = fmt.Sprint("ag::w::i::", r.IntN(1000))
		}
		e := entryFor(1, addresses...)
		c := contentsOf(e)
		for _, a := range addresses {
			if c.lack(hashOf(a)) {
				t.Fatalf("%s is said to be missing", a)
			}
		}
		for i := range 100 {
			if asked++; !c.lack(hashOf(fmt.Sprint("ag::w::other::", i))) {
				wrong++
			}
		}
		e.Data = append(e.Data, 0xff)
		if contentsOf(e).lack(hashOf("ag::w::i::none")) {
			t.Fatal("a damaged entry is passed over")
		}
	}
	if wrong > asked/20 {
		t.Errorf("%d of %d addresses that are not there may be there", wrong, asked)
	}
}

// What two have read is passed over by others in one step, up to the first entry
// that has something for them.
func TestRingSkips(t *testing.T) {
	t.Parallel()
	r := past{limit: 1 << 20}
	for offset := range uint64(10) {
		address := "ag::w::i::others"
		if offset == 6 {
			address = "ag::w::i::mine"
		}
		r.add(entryFor(offset, address))
	}
	mine := hashOf("ag::w::i::mine")
	for _, c := range []struct{ reads, upTo int64 }{{0, -1}, {1, -1}, {2, endOf(5)}} {
		for at := none; ; {
			e, g, more := r.after(at)
			if !more || c.reads == 0 {
				break
			}
			g.read(e)
			at = endOf(e.Offset)
		}
		if upTo := r.skip(none, mine); upTo != c.upTo {
			t.Errorf("after %d reads it goes on at %d, want %d", c.reads, upTo, c.upTo)
		}
	}
	if upTo := r.skip(endOf(6), mine); upTo != endOf(9) {
		t.Errorf("from behind its own it goes on at %d", upTo)
	}
	r.limit = len(r.entries[0].Data) * 4
	r.add(entryFor(10, "ag::w::i::others"))
	if len(r.glances) != len(r.entries) || r.skip(endOf(7), mine) != endOf(9) {
		t.Error("what is known belongs to other entries")
	}
}

// Many who were away at once get their own mail from among that of others, from
// the ring and from the log (delivery rule C8).
func TestC8ManyAmongOthers(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]int{"ring": 1 << 20, "log": 1000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t, func(o *Options) { o.RingBytes = limit })
			a := w.agent("a", client(0))
			const readers, mails = 30, 3
			for i := range readers {
				w.left(fmt.Sprint("r", i))
			}
			for mail := range mails {
				for i := range 300 {
					a.send(fmt.Sprint("ag::w::i::other", i%7), "x", "")
				}
				for i := range readers {
					a.send(fmt.Sprint("ag::w::i::r", i), fmt.Sprint(mail), "")
				}
			}
			w.settled()
			all := make([]*session, readers)
			for i := range all {
				all[i] = w.agent(fmt.Sprint("r", i), client(0))
			}
			for _, s := range all {
				s.wants("0", "1", "2")
			}
			for deadline := time.Now().Add(patience); ; {
				joined := true
				for _, s := range all {
					s.pump()
					joined = joined && s.sub.inboxes[0].Fed() == delivery.FedByTail
				}
				if joined || time.Now().After(deadline) {
					break
				}
				<-soon()
			}
			for _, s := range all {
				s.quiet()
			}
		})
	}
}
