package router

import (
	"cmp"
	"hash/maphash"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// Bounds of what is remembered of message ids (delivery rule P6).
const (
	idsPerPair = 4096
	idsFor     = 10 * time.Minute
	// maxIDs bounds a partition's memory of them, whoever sends; the oldest are
	// forgotten first.
	maxIDs = 1 << 18
	// maxWaiting bounds how many repeats of one pending id are answered.
	maxWaiting = 64
)

// pair is a sender and an address: ids are unique within it.
type pair struct{ source, address string }

// idempotency remembers the outcome of recent message ids of a partition.
// Guarded by the partition's lock. Nothing in it takes longer the more it
// knows.
type idempotency struct {
	pairs          map[pair]*idTable
	total          int
	oldest, newest *idRecord // of all pairs
	limit          int       // of total; 0: maxIDs
}

type idTable struct {
	key            pair
	records        map[string]*idRecord
	oldest, newest *idRecord
}

// idRecord is what is known of one message id.
type idRecord struct {
	id      string
	digest  uint64
	at      time.Time
	outcome streams.Outcome // 0 while pending

	table                *idTable // nil when it is forgotten
	older, newer         *idRecord
	olderHere, newerHere *idRecord // of the same pair

	mu      sync.Mutex
	waiting []waitingRepeat
}

type waitingRepeat struct {
	sender *Sender
	answer answer
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
	return t.records[id]
}

// add remembers a new id as pending.
func (d *idempotency) add(key pair, id string, sum uint64, now time.Time) *idRecord {
	if d.pairs == nil {
		d.pairs = map[pair]*idTable{}
	}
	t := d.pairs[key]
	if t == nil {
		t = &idTable{key: key, records: map[string]*idRecord{}}
		d.pairs[key] = t
	}
	r := &idRecord{id: id, digest: sum, at: now, table: t, older: d.newest, olderHere: t.newest}
	if d.newest == nil {
		d.oldest = r
	} else {
		d.newest.newer = r
	}
	if t.newest == nil {
		t.oldest = r
	} else {
		t.newest.newerHere = r
	}
	d.newest, t.newest = r, r
	t.records[id] = r
	d.total++
	if len(t.records) > idsPerPair {
		d.forget(t.oldest)
	}
	if limit := cmp.Or(d.limit, maxIDs); d.total > limit {
		d.forget(d.oldest)
	}
	return r
}

// forget removes a record.
func (d *idempotency) forget(r *idRecord) {
	t := r.table
	if t == nil {
		return
	}
	unlink(&d.oldest, &d.newest, r, (*idRecord).all)
	unlink(&t.oldest, &t.newest, r, (*idRecord).here)
	r.table = nil
	d.total--
	delete(t.records, r.id)
	if len(t.records) == 0 {
		delete(d.pairs, t.key)
	}
}

func (r *idRecord) all() (older, newer **idRecord)  { return &r.older, &r.newer }
func (r *idRecord) here() (older, newer **idRecord) { return &r.olderHere, &r.newerHere }

// unlink takes r out of one of the two lists that it is in.
func unlink(oldest, newest **idRecord, r *idRecord, links func(*idRecord) (older, newer **idRecord)) {
	older, newer := links(r)
	if *older == nil {
		*oldest = *newer
	} else {
		_, link := links(*older)
		*link = *newer
	}
	if *newer == nil {
		*newest = *older
	} else {
		link, _ := links(*newer)
		*link = *older
	}
	*older, *newer = nil, nil
}

// settle records an outcome. An id that was surely not stored is free again.
func (d *idempotency) settle(r *idRecord, outcome streams.Outcome) {
	r.outcome = outcome
	if outcome == streams.NotStored {
		d.forget(r)
	}
}

// expire forgets what is too old.
func (d *idempotency) expire(now time.Time) {
	for d.oldest != nil && now.Sub(d.oldest.at) > idsFor {
		d.forget(d.oldest)
	}
}

// wait answers a repeat when the first send's outcome is known. It reports
// false if too many wait already.
func (r *idRecord) wait(s *Sender, a answer) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) >= maxWaiting {
		return false
	}
	r.waiting = append(r.waiting, waitingRepeat{s, a})
	return true
}

func (r *idRecord) tellWaiting(outcome streams.Outcome) {
	r.mu.Lock()
	waiting := r.waiting
	r.waiting = nil
	r.mu.Unlock()
	for _, w := range waiting {
		w.sender.settle(w.answer, outcome, true)
		w.sender.answered()
	}
}
