package router

import (
	"cmp"
	"hash/maphash"
	"math/bits"
	"time"

	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

// Bounds of what is remembered of message ids (delivery rule P6).
const (
	idsPerPair = 4096
	idsFor     = 10 * time.Minute
	// maxIDs bounds a gateway's memory of them, whoever sends; each partition
	// has its share, at least leastIDs, and forgets the oldest first. An id
	// takes about 110 bytes.
	maxIDs   = 1 << 20
	leastIDs = 4 * idsPerPair
	// maxWaiting bounds how many repeats of one pending id are answered.
	maxWaiting = 64
)

// pair is a sender and an address: ids are unique within it.
type pair struct{ source, address string }

// idKey stands for a sender, an address and a message id. Hashes take the place
// of the strings so that the memory holds no pointers; their seed is drawn by
// each process, so that nobody can look for two that meet.
type idKey struct{ pair, id uint64 }

var hashSeed = maphash.MakeSeed()

func keyOf(source, address, id string) idKey {
	return joinKey(maphash.String(hashSeed, source), maphash.String(hashSeed, address), maphash.String(hashSeed, id))
}

func keyOfBytes(source, address, id []byte) idKey {
	return joinKey(maphash.Bytes(hashSeed, source), maphash.Bytes(hashSeed, address), maphash.Bytes(hashSeed, id))
}

func joinKey(source, address, id uint64) idKey {
	return idKey{source ^ bits.RotateLeft64(address*0x9e3779b97f4a7c15, 29), id}
}

// digest tells payloads apart. It is a comparison within this process only:
// each gateway makes its own of what the log shows it.
func digest(payload []byte, kind int32, subject, onBehalf []byte) uint64 {
	sum := maphash.Bytes(hashSeed, payload) ^ maphash.Bytes(hashSeed, subject)*3 ^ uint64(kind)*0x9e3779b97f4a7c15
	if len(onBehalf) > 0 {
		sum ^= maphash.Bytes(hashSeed, onBehalf) * 5
	}
	return sum
}

// digestOf is the digest of what is to be published.
func digestOf(e *envelope.Envelope) uint64 {
	return digest(e.Payload, e.Type, []byte(e.Subject), e.OnBehalf)
}

// ids is what a partition remembers of message ids: of this gateway's sends,
// pending ones too, and of all that its tail shows. Guarded by the partition's
// lock. Nothing in it takes longer the more it knows.
type ids struct {
	index map[idKey]slotID
	pairs map[uint64]idPair
	slots []idRecord // slots[0] is not used
	free  []slotID
	// The list of all records, oldest first.
	oldest, newest slotID
	limit          int // of the records; 0: maxIDs
	// repeats wait for the outcome of a pending send.
	repeats map[idKey]*repeatsOf
}

type slotID uint32 // 0: none

// idRecord is what is known of one message id.
type idRecord struct {
	key    idKey
	digest uint64
	// at is the first message's time in Unix milliseconds, as it was stamped.
	at int64
	// position is where the tail has shown the first copy, none before that.
	position int64
	// seq is the origin_seq of this gateway's own copy, 0 if there is none.
	seq     uint64
	outcome streams.Outcome // 0 while pending

	older, newer         slotID
	olderHere, newerHere slotID // of the same pair
}

type idPair struct {
	oldest, newest slotID
	n              int32
}

type repeatsOf struct {
	seq     uint64
	waiting []waitingRepeat
}

type waitingRepeat struct {
	sender *Sender
	answer answer
}

// find returns the record of an id, nil if it is new or too old. It is valid
// until the next add.
func (d *ids) find(key idKey, now int64) *idRecord {
	i := d.index[key]
	if i == 0 {
		return nil
	}
	r := &d.slots[i]
	if now-r.at > idsFor.Milliseconds() {
		return nil
	}
	return r
}

// add remembers an id as pending, in the place of an older record. The result
// is valid until the next add.
func (d *ids) add(key idKey, sum uint64, at int64) *idRecord {
	if d.index == nil {
		d.index, d.pairs = map[idKey]slotID{}, map[uint64]idPair{}
		d.slots = make([]idRecord, 1, 64)
	}
	if i := d.index[key]; i != 0 {
		d.forget(i)
	}
	pair := d.pairs[key.pair]
	switch {
	case pair.n >= idsPerPair:
		d.forget(pair.oldest)
		pair = d.pairs[key.pair]
	case len(d.index) >= cmp.Or(d.limit, maxIDs):
		d.forget(d.oldest)
		pair = d.pairs[key.pair]
	}
	var i slotID
	if n := len(d.free); n > 0 {
		i, d.free = d.free[n-1], d.free[:n-1]
	} else {
		d.slots = append(d.slots, idRecord{})
		i = slotID(len(d.slots) - 1)
	}
	d.slots[i] = idRecord{key: key, digest: sum, at: at, position: none, older: d.newest, olderHere: pair.newest}
	if d.newest == 0 {
		d.oldest = i
	} else {
		d.slots[d.newest].newer = i
	}
	if pair.newest == 0 {
		pair.oldest = i
	} else {
		d.slots[pair.newest].newerHere = i
	}
	d.newest, pair.newest = i, i
	pair.n++
	d.pairs[key.pair] = pair
	d.index[key] = i
	return &d.slots[i]
}

// forget removes a record.
func (d *ids) forget(i slotID) {
	r := &d.slots[i]
	if r.older == 0 {
		d.oldest = r.newer
	} else {
		d.slots[r.older].newer = r.newer
	}
	if r.newer == 0 {
		d.newest = r.older
	} else {
		d.slots[r.newer].older = r.older
	}
	pair := d.pairs[r.key.pair]
	if r.olderHere == 0 {
		pair.oldest = r.newerHere
	} else {
		d.slots[r.olderHere].newerHere = r.newerHere
	}
	if r.newerHere == 0 {
		pair.newest = r.olderHere
	} else {
		d.slots[r.newerHere].olderHere = r.olderHere
	}
	if pair.n--; pair.n == 0 {
		delete(d.pairs, r.key.pair)
	} else {
		d.pairs[r.key.pair] = pair
	}
	delete(d.index, r.key)
	*r = idRecord{}
	d.free = append(d.free, i)
}

// expireAtOnce bounds how long the lock is held for it. What is too old is not
// found meanwhile, and counts towards the limit only.
const expireAtOnce = 20_000

// expire forgets what is too old.
func (d *ids) expire(now int64) {
	for range expireAtOnce {
		if d.oldest == 0 || now-d.slots[d.oldest].at <= idsFor.Milliseconds() {
			break
		}
		d.forget(d.oldest)
	}
	if len(d.index) == 0 && len(d.slots) > 1<<12 {
		*d = ids{limit: d.limit, repeats: d.repeats} // maps and slots never shrink
	}
}

// settle records the outcome of an own send, and returns the repeats that wait
// for it. An id that was surely not stored is free again.
func (d *ids) settle(key idKey, seq uint64, outcome streams.Outcome) []waitingRepeat {
	if i := d.index[key]; i != 0 && d.slots[i].seq == seq {
		r := &d.slots[i]
		switch {
		case r.position != none:
			// The tail has shown a copy: it is stored, whatever became of this one.
			r.outcome = streams.Stored
		case outcome == streams.NotStored:
			d.forget(i)
		default:
			r.outcome = outcome
		}
	}
	waiting := d.repeats[key]
	if waiting == nil || waiting.seq != seq {
		return nil
	}
	delete(d.repeats, key)
	return waiting.waiting
}

// wait answers a repeat when the outcome of a pending send is known. It reports
// false if too many wait already.
func (d *ids) wait(r *idRecord, s *Sender, a answer) bool {
	waiting := d.repeats[r.key]
	if waiting == nil {
		waiting = &repeatsOf{seq: r.seq}
		if d.repeats == nil {
			d.repeats = map[idKey]*repeatsOf{}
		}
		d.repeats[r.key] = waiting
	}
	if waiting.seq != r.seq || len(waiting.waiting) >= maxWaiting {
		return false
	}
	waiting.waiting = append(waiting.waiting, waitingRepeat{s, a})
	return true
}
