package router

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// backlog does what its owner has to do later, one after the other, each when
// it is due. It has one goroutine while there is something to do, so that who
// nacks much costs one goroutine and one read of the log at a time. What is in
// it is bounded by its owner.
type backlog struct {
	r *Router
	// idle, if set, is called when nothing is left to do.
	idle func()

	mu      sync.Mutex
	tasks   taskHeap
	running bool
	closed  bool
	wake    chan struct{}
}

// task is done again after the time that it returns, until that is 0.
type task struct {
	due time.Time
	do  func() time.Duration
}

func newBacklog(r *Router, idle func()) *backlog {
	return &backlog{r: r, idle: idle, wake: make(chan struct{}, 1)}
}

// add does something later, unless the backlog or the router is closed by
// then.
func (b *backlog) add(after time.Duration, do func() time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return
	}
	heap.Push(&b.tasks, task{time.Now().Add(after), do})
	if b.running {
		select {
		case b.wake <- struct{}{}:
		default:
		}
		return
	}
	if b.running = b.r.spawn(b.run); !b.running {
		b.tasks = nil
	}
}

// size returns how much there is to do.
func (b *backlog) size() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.tasks)
}

// close forgets what there is to do, and takes nothing more.
func (b *backlog) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed, b.tasks = true, nil
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *backlog) run(ctx context.Context) {
	for {
		do, after, ok := b.next()
		if !ok {
			if b.idle != nil {
				b.idle()
			}
			return
		}
		if do == nil {
			if !b.wait(ctx, after) {
				return
			}
			continue
		}
		if again := do(); again > 0 {
			b.again(again, do)
		}
	}
}

// next returns what is due, or how long nothing is.
func (b *backlog) next() (do func() time.Duration, after time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.tasks) == 0 {
		b.running = false
		return nil, 0, false
	}
	if after = time.Until(b.tasks[0].due); after > 0 {
		return nil, after, true
	}
	return heap.Pop(&b.tasks).(task).do, 0, true
}

func (b *backlog) again(after time.Duration, do func() time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		heap.Push(&b.tasks, task{time.Now().Add(after), do})
	}
}

func (b *backlog) wait(ctx context.Context, after time.Duration) bool {
	t := time.NewTimer(after)
	defer t.Stop()
	select {
	case <-t.C:
	case <-b.wake:
	case <-ctx.Done():
		return false
	}
	return true
}

// taskHeap has the first that is due at the top.
type taskHeap []task

func (h taskHeap) Len() int           { return len(h) }
func (h taskHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h taskHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *taskHeap) Push(x any)        { *h = append(*h, x.(task)) }

func (h *taskHeap) Pop() any {
	old := *h
	last := len(old) - 1
	x := old[last]
	old[last] = task{}
	*h = old[:last]
	return x
}
