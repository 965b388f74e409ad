package router

import (
	"sync"
	"sync/atomic"

	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

// A message may be stored twice under one message id: two gateways raced, or
// one stored late what it was told to drop. The log's order decides: the first
// copy is the message, later ones are passed over by everybody who delivers
// (delivery rule P6). Two are copies of each other if sender, address, id and
// contents are equal and not more than ten minutes lie between their stamps;
// so gateways that remember different amounts do not contradict each other on
// what is within the promise, and a first copy is never taken for another.
//
// The tail judges each message once, when it shows it. What it finds is kept
// for those who read the same entries later.

// maxCopies bounds what a partition keeps of the tail's findings. They are
// rare; past it the oldest are forgotten, and who is that far behind gets the
// message twice.
const maxCopies = 4096

// verdict is what is special about a message.
type verdict struct {
	// again says that an earlier copy is in the log: it is not delivered.
	again bool
	// twin is the origin_seq of a copy of this gateway that was handed over
	// live, or is about to be, and is not the first in the log; 0: none.
	twin uint64
}

// copies keeps verdicts by position. It is safe for concurrent use.
type copies struct {
	kept atomic.Int32

	mu    sync.Mutex
	at    map[int64]verdict
	order []int64 // as a ring, once it is full
	next  int
}

func (c *copies) add(position int64, v verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.at == nil {
		c.at = map[int64]verdict{}
	}
	if len(c.order) < maxCopies {
		c.order = append(c.order, position)
	} else {
		delete(c.at, c.order[c.next])
		c.order[c.next] = position
		c.next = (c.next + 1) % maxCopies
	}
	c.at[position] = v
	c.kept.Store(int32(len(c.at)))
}

// of returns what the tail found of the message at a position.
func (c *copies) of(position int64) verdict {
	if c.kept.Load() == 0 {
		return verdict{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at[position]
}

// repeatable reports whether a message has an id that may come again. Older
// versions did not say whose it was.
func repeatable(v *envelope.View) bool { return !v.Drawn && len(v.MessageID) > 0 }

// judgeCopy remembers the id of a message that the tail shows, and says whether it
// is a copy. The lock is held.
func (p *partition) judgeCopy(v *envelope.View, position int64, own bool) verdict {
	key, sum := keyOfBytes(v.Source, v.Topic, v.MessageID), digest(v.Payload, v.Type, v.Subject, v.OnBehalf)
	i := p.ids.index[key]
	if i == 0 {
		p.remember(key, sum, v, position, own)
		return verdict{}
	}
	r := &p.ids.slots[i]
	pending := r.position == none
	if r.digest != sum || v.TimestampMS-r.at > idsFor.Milliseconds() {
		// Another message under a used id. This gateway's own that is on its
		// way comes after it.
		if !pending {
			p.remember(key, sum, v, position, own)
		}
		return verdict{}
	}
	if !pending {
		found := verdict{again: r.position < position}
		if found.again {
			p.r.stats.Copies.Add(1)
			p.copies.add(position, found)
		}
		return found
	}
	r.position = position
	if r.outcome == streams.Unknown {
		r.outcome = streams.Stored
	}
	if own && v.Seq == r.seq {
		return verdict{}
	}
	// Another gateway's copy has come first.
	found := verdict{twin: r.seq}
	p.copies.add(position, found)
	return found
}

func (p *partition) remember(key idKey, sum uint64, v *envelope.View, position int64, own bool) {
	r := p.ids.add(key, sum, v.TimestampMS)
	r.position, r.outcome = position, streams.Stored
	if own {
		r.seq = v.Seq
	}
}

// window recognises copies for a pass over a part of the log that the tail has
// not judged, because it is older than this gateway. It knows what has come by
// in the pass: between windowIDs and twice as many ids.
type window struct {
	young, old map[idKey]windowed
}

type windowed struct {
	digest   uint64
	at       int64
	position int64
}

// windowIDs bounds one half of a window.
const windowIDs = 4 * idsPerPair

// again reports whether an earlier copy of a message has come by.
func (w *window) again(v *envelope.View, position int64) bool {
	key, sum := keyOfBytes(v.Source, v.Topic, v.MessageID), digest(v.Payload, v.Type, v.Subject, v.OnBehalf)
	first, known := w.young[key]
	if !known {
		first, known = w.old[key]
	}
	if known && first.position == position {
		return false
	}
	if known && first.position < position && first.digest == sum && v.TimestampMS-first.at <= idsFor.Milliseconds() {
		return true
	}
	if w.young == nil || len(w.young) >= windowIDs {
		w.young, w.old = map[idKey]windowed{}, w.young
	}
	w.young[key] = windowed{sum, v.TimestampMS, position}
	return false
}
