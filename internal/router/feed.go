package router

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/streams"
)

const (
	// maxFeedMessages and maxFeedBytes bound what a feed has read and not
	// forwarded; then it reads no further. A whole entry goes beyond them.
	maxFeedMessages = 1024
	maxFeedBytes    = 4 << 20
	// maxForwardBatch is how many messages are on their way at once at most.
	maxForwardBatch = 512
	// maxForwardPause is the longest pause before what failed is tried again.
	maxForwardPause = 5 * time.Second
)

// errRewritten ends forwarding when the log has lost its end.
var errRewritten = errors.New("router: the log is not the one that routes have read")

// feed is one partition as it is read for routes.
type feed struct {
	f       *forwarder
	p       *partition
	lease   presence.Lease
	routes  []int
	after   map[int]int64 // by route: what it has done
	tail    *streams.Tail
	fail    context.CancelCauseFunc
	wake    chan struct{} // there is something to do; capacity 1
	room    chan struct{} // something was taken; capacity 1
	due     chan<- struct{}
	over    <-chan struct{}
	senders map[string]*Sender // by principal; the feed's own
	// batchSize is how many messages are on their way at once, window how many
	// may be forwarded beyond what is committed when a batch begins.
	batchSize, window int

	mu      sync.Mutex
	queue   []forwarding
	bytes   int
	read    int64  // what the tail has handed on
	done    int64  // up to where everything is forwarded
	stored  int64  // up to where that is committed
	sent    uint64 // messages forwarded
	covered uint64 // of them, those that are committed
	moved   chan struct{}

	answers sync.Mutex // a leaf
	batch   *batch
	number  uint64
}

// forwarding is a message that a route takes.
type forwarding struct {
	route    int
	view     envelope.View
	position int64
}

// feedMark is how far a feed was at some time.
type feedMark struct {
	position int64
	sent     uint64
}

// key is the name under which the position of a route in this partition is kept.
func (fd *feed) key(route int) string {
	return "route::" + strconv.Itoa(fd.p.id) + "::" + fd.f.routes[route].Name
}

func (fd *feed) setDue(due chan<- struct{}) {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	fd.due = due
	notify(fd.wake)
}

func (fd *feed) start() {
	from := startAt(fd.done)
	expected, known := from.Offset()
	fd.tail = streams.NewTail(streams.TailOptions{
		Driver: fd.f.r.driver, Partition: fd.p.id, Start: from, Logger: fd.f.r.log,
		Handle: func(e streams.Entry) {
			if known && e.Offset > expected {
				fd.f.r.log.Error("retention has removed messages before they were forwarded", "partition", fd.p.id, "from", expected, "to", e.Offset)
			}
			known = false
			fd.handle(e)
		},
		Rewritten: func() { fd.fail(errRewritten) },
	})
}

// handle takes what routes want out of an entry. It waits while too much is
// queued: then the log is not read further.
func (fd *feed) handle(e streams.Entry) {
	var found []forwarding
	size := 0
	var v envelope.View
	for it := streams.Open(e.Data); it.Next(); {
		if v.Parse(it.Bytes()) != nil || v.Kind != envelope.Message {
			continue
		}
		position := int64(streams.At(e.Offset, it.Index()))
		var kept envelope.View
		for _, i := range fd.routes {
			if position <= fd.after[i] || !fd.f.routes[i].Takes(v.Topic, v.Subject) {
				continue
			}
			if kept.Raw() == nil {
				kept = v.Clone()
				size += len(v.Raw())
			}
			found = append(found, forwarding{i, kept, position})
		}
	}
	for len(found) > 0 {
		fd.mu.Lock()
		full := len(fd.queue) >= maxFeedMessages || fd.bytes >= maxFeedBytes
		fd.mu.Unlock()
		if !full {
			break
		}
		select {
		case <-fd.room:
		case <-fd.over:
			return
		}
	}
	fd.mu.Lock()
	fd.queue = append(fd.queue, found...)
	fd.bytes += size
	fd.read = endOf(e.Offset)
	fd.mu.Unlock()
	notify(fd.wake)
}

func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take removes the next messages from the queue. upTo is up to where everything
// is forwarded when they are.
func (fd *feed) take() (list []forwarding, upTo int64) {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	n := min(len(fd.queue), fd.batchSize)
	list, upTo = fd.queue[:n:n], fd.read
	if n < len(fd.queue) {
		upTo = fd.queue[n].position - 1
	}
	if fd.queue = fd.queue[n:]; len(fd.queue) == 0 {
		fd.queue = nil
	}
	for i := range list {
		if i == 0 || list[i].position != list[i-1].position {
			fd.bytes -= len(list[i].view.Raw())
		}
	}
	if len(fd.queue) == 0 {
		fd.bytes = 0
	}
	notify(fd.room)
	return list, upTo
}

// run forwards until ctx ends.
func (fd *feed) run(ctx context.Context) {
	fd.senders = map[string]*Sender{}
	for {
		list, upTo := fd.take()
		if len(list) == 0 {
			fd.advance(upTo, 0)
			select {
			case <-fd.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		if !fd.windowOpen(ctx) || !fd.forward(ctx, list) {
			return
		}
		fd.advance(upTo, len(list))
		if fd.more() {
			notify(fd.wake)
		}
	}
}

func (fd *feed) more() bool {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	return len(fd.queue) > 0
}

func (fd *feed) advance(upTo int64, sent int) {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	fd.done = max(fd.done, upTo)
	fd.sent += uint64(sent)
}

// windowOpen waits until enough of what was forwarded is committed. It reports
// false if ctx ends before.
func (fd *feed) windowOpen(ctx context.Context) bool {
	for {
		fd.mu.Lock()
		open := fd.sent-fd.covered <= uint64(fd.window)
		moved, due := make(chan struct{}), fd.due
		fd.moved = moved
		fd.mu.Unlock()
		if open {
			return ctx.Err() == nil
		}
		if due != nil {
			notify(due)
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return false
		}
	}
}

func (fd *feed) mark() feedMark {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	return feedMark{fd.done, fd.sent}
}

func (fd *feed) committed() int64 {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	return fd.stored
}

// settleMark is told that a mark is committed.
func (fd *feed) settleMark(m feedMark) {
	fd.mu.Lock()
	defer fd.mu.Unlock()
	fd.stored, fd.covered = max(fd.stored, m.position), max(fd.covered, m.sent)
	if fd.moved != nil {
		close(fd.moved)
		fd.moved = nil
	}
}

// forward publishes messages and waits for their outcomes; what failed and may
// succeed later is published again, in the same order, until it is stored. It
// reports false if that was not so when ctx ended.
func (fd *feed) forward(ctx context.Context, list []forwarding) bool {
	for pause := 50 * time.Millisecond; len(list) > 0; pause = min(2*pause, maxForwardPause) {
		if fd.lease.Lost() {
			return false
		}
		b := fd.begin(len(list))
		for i := range list {
			fd.publish(b, i, &list[i])
		}
		select {
		case <-b.settled:
		case <-ctx.Done():
			return false
		}
		var again []forwarding
		for i := range list {
			switch err := b.outcome(i); {
			case err == nil:
				fd.f.r.stats.Forwarded.Add(1)
			case err.Retryable:
				again = append(again, list[i])
			default:
				fd.refused(&list[i], string(err.Code), err.Message)
			}
		}
		if list = again; len(list) > 0 && !wait(ctx, pause) {
			return false
		}
	}
	return true
}

func (fd *feed) refused(m *forwarding, code, why string) {
	fd.f.r.stats.ForwardsRefused.Add(1)
	fd.f.log.refused(fd.f.routes[m.route].Name, code, why)
}
