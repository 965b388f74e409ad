package orchestrator

import (
	"container/heap"
	"sync"
	"time"
)

// Bounds of what is looked at.
const (
	// maxLooks bounds the identities that are to be looked at; what is beyond is
	// found by a sweep.
	maxLooks = 1 << 16
	// maxTogether is how many are looked at in one round, and lookers how many
	// at the same time.
	maxTogether = 256
	lookers     = 8
)

// look is an identity that may have to be started.
type look struct {
	identity string
	// sender has sent the message that waits; empty: it is not known whether
	// mail waits, which is to be found out.
	sender, workspace string
	due, again        time.Time // again: it is to be looked at once more
	tries             int
	at                int  // in the heap; -1: in hand
	renewed           bool // asked for again while it is in hand
}

// looks are the identities that are to be looked at, by identity, the one that
// is due first at the top. What is asked for twice is one.
type looks struct {
	mu       sync.Mutex
	wake     chan struct{}
	by       map[string]*look
	heap     lookHeap
	overflow bool // something found no room
}

func (l *looks) init() {
	l.wake, l.by = make(chan struct{}, 1), map[string]*look{}
}

// add asks for a look; it reports false if there is no room.
func (l *looks) add(identity, sender, workspace string, due, again time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.by[identity]
	switch {
	case k == nil && len(l.by) >= maxLooks:
		l.overflow = true
		return false
	case k == nil:
		k = &look{identity: identity, sender: sender, workspace: workspace, due: due, again: again}
		l.by[identity] = k
		heap.Push(&l.heap, k)
	default:
		if k.sender == "" && sender != "" {
			// A new message is looked after at once, whatever rested.
			k.sender, k.workspace, k.tries = sender, workspace, 0
		}
		if again.After(k.again) {
			k.again = again
		}
		switch {
		case k.at < 0:
			k.renewed = true
		case due.Before(k.due) && k.tries == 0:
			k.due = due
			heap.Fix(&l.heap, k.at)
		}
	}
	nudge(l.wake)
	return true
}

// take returns copies of what is due, and how long nothing is otherwise: who is
// in hand may be asked for again.
func (l *looks) take(now time.Time) (list []look, after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.heap) > 0 && len(list) < maxTogether {
		if after = l.heap[0].due.Sub(now); after > 0 {
			return list, after
		}
		list = append(list, *heap.Pop(&l.heap).(*look))
	}
	if len(l.heap) == 0 {
		after = time.Hour
	}
	return list, after
}

// done puts a look back if it is to be made again: because it was asked for
// meanwhile, or after a while, if later is not 0.
func (l *looks) done(identity string, now time.Time, later time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.by[identity]
	switch {
	case k.renewed:
		// However long it was to rest: a new message is looked after soon.
		k.tries, k.due = 0, now.Add(min(later, firstRetry))
	case later > 0:
		k.tries++
		k.due = now.Add(later)
	case !k.again.IsZero():
		k.tries, k.due, k.again, k.sender = 0, k.again, time.Time{}, ""
	default:
		delete(l.by, k.identity)
		return
	}
	k.renewed = false
	heap.Push(&l.heap, k)
}

// overflowed reports, once, whether something found no room, if there is some
// now.
func (l *looks) overflowed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.overflow || len(l.by) > maxLooks/2 {
		return false
	}
	l.overflow = false
	return true
}

// room reports whether there is room for many more.
func (l *looks) room() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.by) < maxLooks/2
}

// size returns how many wait.
func (l *looks) size() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.by)
}

// lookHeap has the first that is due at the top.
type lookHeap []*look

func (h lookHeap) Len() int           { return len(h) }
func (h lookHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }

func (h lookHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

func (h *lookHeap) Push(x any) {
	k := x.(*look)
	k.at = len(*h)
	*h = append(*h, k)
}

func (h *lookHeap) Pop() any {
	old := *h
	k := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	k.at = -1
	return k
}
