package router

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// Bounds of what is remembered of message ids (delivery rule P6).
const (
	idsPerPair = 4096
	idsFor     = 10 * time.Minute
	// maxIDs bounds a partition's memory of them, whoever sends; the pair that
	// was used longest ago is forgotten first.
	maxIDs = 1 << 18
	// maxWaiting bounds how many repeats of one pending id are answered.
	maxWaiting = 64
)

// pair is a sender and an address: ids are unique within it.
type pair struct{ source, address string }

// idempotency remembers the outcome of recent message ids of a partition.
// Guarded by the partition's lock.
type idempotency struct {
	pairs map[pair]*idTable
	total int
	clock uint64 // counts uses, to find the pair that was used longest ago
}

type idTable struct {
	records map[string]*idRecord
	order   []*idRecord // oldest first
	used    uint64
}

// idRecord is what is known of one message id.
type idRecord struct {
	id      string
	digest  uint64
	at      time.Time
	outcome streams.Outcome // 0 while pending

	mu      sync.Mutex
	waiting []waitingRepeat
}

type waitingRepeat struct {
	sender    *Sender
	requestID string
}

var digestSeed = maphash.MakeSeed()

// digest tells payloads apart. It is a comparison within this process only.
func digest(payload []byte, kind int32, subject string) uint64 {
	var h maphash.Hash
	h.SetSeed(digestSeed)
	_, _ = h.Write(payload)
	_ = h.WriteByte(byte(kind))
	_, _ = h.WriteString(subject)
	return h.Sum64()
}

// find returns the record of an id, nil if it is new.
func (d *idempotency) find(key pair, id string) *idRecord {
	t := d.pairs[key]
	if t == nil {
		return nil
	}
	d.clock++
	t.used = d.clock
	return t.records[id]
}

// add remembers a new id as pending.
func (d *idempotency) add(key pair, id string, sum uint64, now time.Time) *idRecord {
	if d.pairs == nil {
		d.pairs = map[pair]*idTable{}
	}
	t := d.pairs[key]
	if t == nil {
		t = &idTable{records: map[string]*idRecord{}}
		d.pairs[key] = t
	}
	d.clock++
	t.used = d.clock
	r := &idRecord{id: id, digest: sum, at: now}
	t.records[id] = r
	t.order = append(t.order, r)
	d.total++
	if len(t.order) > idsPerPair {
		d.dropOldest(t)
	}
	if d.total > maxIDs {
		d.forgetLeastUsed()
	}
	return r
}

func (d *idempotency) dropOldest(t *idTable) {
	old := t.order[0]
	t.order[0] = nil
	t.order = t.order[1:]
	d.total--
	if t.records[old.id] == old {
		delete(t.records, old.id)
	}
}

func (d *idempotency) forgetLeastUsed() {
	var oldest pair
	var used uint64
	for key, t := range d.pairs {
		if used == 0 || t.used < used {
			oldest, used = key, t.used
		}
	}
	d.total -= len(d.pairs[oldest].order)
	delete(d.pairs, oldest)
}

// settle records an outcome. An id that was surely not stored is free again.
func (d *idempotency) settle(key pair, r *idRecord, outcome streams.Outcome) {
	r.outcome = outcome
	if outcome != streams.NotStored {
		return
	}
	if t := d.pairs[key]; t != nil && t.records[r.id] == r {
		delete(t.records, r.id)
	}
}

// expire forgets what is too old.
func (d *idempotency) expire(now time.Time) {
	for key, t := range d.pairs {
		for len(t.order) > 0 && now.Sub(t.order[0].at) > idsFor {
			d.dropOldest(t)
		}
		if len(t.order) == 0 {
			delete(d.pairs, key)
		}
	}
}

// wait answers a repeat when the first send's outcome is known. It reports
// false if too many wait already.
func (r *idRecord) wait(s *Sender, requestID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) >= maxWaiting {
		return false
	}
	r.waiting = append(r.waiting, waitingRepeat{s, requestID})
	return true
}

func (r *idRecord) tellWaiting(outcome streams.Outcome) {
	r.mu.Lock()
	waiting := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	for _, w := range waiting {
		w.sender.settle(w.requestID, r.id, outcome, true)
		w.sender.answered()
	}
}
