package client

import (
	"slices"
	"sort"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

const (
	// ackDelay is how long an acknowledgement may wait for others to travel with.
	ackDelay = 5 * time.Millisecond
	// ackBatch are enough to travel at once, if the window is that large.
	ackBatch = 64
	// ackFrame is how many single ones a frame carries.
	ackFrame = 1000
)

// ackLog is what one session was given to acknowledge and how far it is. Not safe
// for concurrent use.
//
// It acknowledges cumulatively up to the oldest open delivery and singly beyond
// it. Gaps in the ids do not hold it up: only what came can be open.
type ackLog struct {
	entries []ackEntry // rising ids, from head on
	head    int
	open    int    // entries that are not settled and come under the window
	last    uint64 // the highest id that came
	singles []uint64
	nacks   []*aetherv1.Nack
	fresh   int       // settled since the last flush
	since   time.Time // of the first of them
}

type ackEntry struct {
	id      uint64
	settled bool
	voted   bool // it does not come under the window
}

// received notes a delivery; voted says that it is shared, for which the gateway
// does not wait. It reports false if the id does not rise.
func (a *ackLog) received(id uint64, voted bool) bool {
	if id <= a.last {
		return false
	}
	a.last = id
	if !voted {
		a.open++
	}
	if a.head > 0 && a.head*2 >= len(a.entries) {
		a.entries = slices.Delete(a.entries, 0, a.head)
		a.head = 0
	}
	a.entries = append(a.entries, ackEntry{id: id, voted: voted})
	return true
}

// settle ends a delivery. It reports whether the writer should look: for the
// first since the last flush, for a nack, and when a batch is complete.
func (a *ackLog) settle(id uint64, v verdict, reason string, batch int, now time.Time) bool {
	live := a.entries[a.head:]
	i := sort.Search(len(live), func(i int) bool { return live[i].id >= id })
	if i == len(live) || live[i].id != id || live[i].settled {
		return false
	}
	live[i].settled = true
	if !live[i].voted {
		a.open--
	}
	for a.head < len(a.entries) && a.entries[a.head].settled {
		a.head++
	}
	if a.fresh == 0 {
		a.since = now
	}
	a.fresh++
	if v == acked {
		a.singles = append(a.singles, id)
		return a.fresh == 1 || a.fresh == batch
	}
	a.nacks = append(a.nacks, &aetherv1.Nack{DeliveryId: id, Reason: reasonOf(reason), Requeue: v == requeued})
	return true
}

// due says whether to flush now, and if not, after how long; 0 is never.
func (a *ackLog) due(batch int, now time.Time) (bool, time.Duration) {
	switch {
	case a.fresh == 0:
		return false, 0
	case a.fresh >= batch, len(a.nacks) > 0:
		return true, 0
	}
	wait := ackDelay - now.Sub(a.since)
	return wait <= 0, max(wait, 0)
}

// flush returns the frames that tell the gateway what is settled. Nacks go
// first and in a frame of their own, so that a cumulative acknowledgement never
// passes over a delivery that the gateway does not yet know to have failed.
func (a *ackLog) flush() []*aetherv1.DeliveryAck {
	var frames []*aetherv1.DeliveryAck
	for some := range slices.Chunk(a.nacks, ackFrame) {
		frames = append(frames, &aetherv1.DeliveryAck{Nack: some})
	}
	upTo := a.last
	if a.head < len(a.entries) {
		upTo = a.entries[a.head].id - 1
	}
	beyond := slices.DeleteFunc(slices.Clone(a.singles), func(id uint64) bool { return id <= upTo })
	slices.Sort(beyond)
	if len(beyond) < len(a.singles) {
		frames = append(frames, &aetherv1.DeliveryAck{UpTo: upTo})
	}
	for some := range slices.Chunk(beyond, ackFrame) {
		frames = append(frames, &aetherv1.DeliveryAck{Ids: some})
	}
	a.nacks, a.singles, a.fresh = nil, a.singles[:0], 0
	return frames
}
