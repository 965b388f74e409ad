package router

import (
	"bytes"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

// reading is something that reads a partition at its own pace: an inbox, or a
// group of workers. It has one feeder at a time; take, starve, advance and at
// are the feeder's.
type reading interface {
	// at is the position up to which everything was handed on.
	at() int64
	// wants reports whether an address is read.
	wants(topic []byte) bool
	// skims returns the hash of the only address that is read, if entries without
	// it may be passed over; the feeder asks.
	skims() (address uint64, ok bool)
	// take hands a message over; false means that there is no room.
	take(v *envelope.View, position uint64, own bool) bool
	// advance moves at over what does not concern it.
	advance(position int64)
	// starve leaves it behind position until it has room.
	starve(position int64)
	// claim makes who the feeder; false means that it is gone.
	claim(who delivery.Feeder) bool
	// leapOver moves at if what lies before e is all that had to be read up to
	// some later place (C5).
	leapOver(e streams.Entry)
	// join prepares for the tail. The partition's lock is held.
	join()
	tellDamaged(offset uint64)
	// lose is called when nothing below the position first is left (C6).
	lose(first int64)
}

// inbox is a session's place in the log of one exclusive address, or, for the
// workflow engine, of all event addresses of a partition.
type inbox struct {
	*delivery.Inbox
	p      *partition
	sub    *Subscription
	topic  string
	hash   uint64 // of topic
	target target

	fence   uint64 // the last origin_seq given when it joined (S2); under the partition's lock
	holding bool   // is in the partition's list; under its lock

	origin origin // as the store had it
	leap   leap   // of the feeder (C5)
	marked int64  // up to where the lease's record says it was given messages; of the router's clock

	// Under the partition's lock: the note of absence as it was read last, and
	// whether, and where, the tail was joined since (C6).
	note      uint64
	noted     bool
	joined    bool
	joinedAt  int64
	rechecked bool // the note was read once more; of the upkeep
	// Whether it may be fed (C2).
	begun, suspected, recreated bool
	// The committed position is to fall to lowerTo: it belongs to a log that is
	// gone. Under the partition's lock.
	lowered      bool
	lowerTo      int64
	recreatedEnd int64
}

var _ reading = (*inbox)(nil)

func (in *inbox) at() int64 { return in.At() }

func (in *inbox) wants(topic []byte) bool {
	if in.topic == anyEvent {
		return bytes.HasPrefix(topic, eventPrefixBytes)
	}
	return string(topic) == in.topic
}

func (in *inbox) take(v *envelope.View, position uint64, own bool) bool {
	return in.Stored(v, position, own)
}

func (in *inbox) advance(position int64)         { in.Advance(position) }
func (in *inbox) starve(position int64)          { in.Starve(position) }
func (in *inbox) claim(who delivery.Feeder) bool { return in.Feed(who) }

func (in *inbox) join() {
	in.fence = in.p.seq
	in.leap = leap{}
	if !in.joined {
		in.joined, in.joinedAt = true, in.p.tailAt
	}
}

func (in *inbox) tellDamaged(offset uint64) {
	in.sub.gap(Gap{Topic: in.Address, Reason: GapDamaged, FirstMissing: uint64(streams.At(offset, 0)), HasFirst: true})
}

// Feed is called by a session's pump for an inbox that has room again.
func (r *Router) Feed(in *delivery.Inbox) {
	switch owner := in.Owner.(type) {
	case *inbox:
		owner.p.feed(owner)
	case *member:
		if c := owner.group.contest; c != nil {
			c.refill()
			return
		}
		owner.group.p.feed(owner.group)
	}
}

// feed hands a reading what the ring has, until it is full, has joined the
// tail, or must be served by the partition's reader.
func (p *partition) feed(rd reading) {
	if rd.claim(delivery.FedByPump) {
		p.catchUp(rd)
	}
}

// catchUp is feed for the one who is its feeder already.
func (p *partition) catchUp(rd reading) {
	for {
		p.mu.Lock()
		at := rd.at()
		if !p.recent.covers(at) {
			p.mu.Unlock()
			if rd.claim(delivery.FedByReader) {
				p.reader.add(rd)
			}
			return
		}
		if address, ok := rd.skims(); ok {
			if upTo := p.recent.skip(at, address); upTo > at {
				rd.advance(upTo)
				p.mu.Unlock()
				continue
			}
		}
		e, glance, more := p.recent.after(at)
		if !more {
			// The end of the log: from here on the tail delivers (S1).
			rd.join()
			rd.claim(delivery.FedByTail)
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		glance.read(e)
		if upTo, ok := p.handOn(rd, e, nil); !ok {
			rd.starve(upTo)
			return
		}
	}
}

// handOn gives a reading what concerns it of an entry. It reports false if
// there was no room for what comes after upTo; the reading is to starve then.
// seen, if not nil, recognises copies that the tail has not judged.
func (p *partition) handOn(rd reading, e streams.Entry, seen *window) (upTo int64, ok bool) {
	rd.leapOver(e)
	at := rd.at()
	if at >= endOf(e.Offset) {
		return at, true
	}
	it := streams.Open(e.Data)
	var v envelope.View
	malformed := false
	for it.Next() {
		position := int64(streams.At(e.Offset, it.Index()))
		if position <= at && seen == nil {
			continue
		}
		if v.Parse(it.Bytes()) != nil {
			malformed = malformed || position > at
			continue
		}
		if v.Kind > envelope.Progress || !rd.wants(v.Topic) {
			continue
		}
		own := v.Origin == p.r.origin
		if repeatable(&v) && p.passOver(rd, &v, position, own, seen) || position <= at {
			continue
		}
		if !rd.take(&v, uint64(position), own) {
			return position - 1, false
		}
	}
	if it.Damaged() || it.Skipped() > 0 || malformed {
		rd.tellDamaged(e.Offset)
	}
	upTo = endOf(e.Offset)
	rd.advance(upTo)
	return upTo, true
}

// passOver reports whether a message is a copy of one that came before, or was
// handed over live as another copy.
func (p *partition) passOver(rd reading, v *envelope.View, position int64, own bool, seen *window) bool {
	found := p.copies.of(position)
	if seen != nil && seen.again(v, position) {
		found.again = true
	}
	in, isInbox := rd.(*inbox)
	if !isInbox {
		return found.again
	}
	return in.copied(v, position, own, found)
}

// copied is passOver for an inbox, when it is known what is special about the
// message.
func (in *inbox) copied(v *envelope.View, position int64, own bool, found verdict) bool {
	switch {
	case found.again:
		if own {
			in.Again(v.Seq, position)
		}
		return true
	case found.twin != 0:
		return in.Twin(found.twin, position)
	}
	return false
}
