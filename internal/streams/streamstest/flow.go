package streamstest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// item is one send of a flow: the n-th of a sender, from 1.
type item struct{ sender, n int }

// flow is traffic through Writers and Tails: each sender sends numbered
// envelopes to an address of its own, and all that is settled and read is
// noted. It is how the promises of the whole are checked, with and without
// faults.
type flow struct {
	t         *testing.T
	log       Log
	o         flowOptions
	placement streams.Placement
	driver    streams.Driver
	writers   []*streams.Writer[item]
	tails     []*streams.Tail
	stop      chan struct{}
	tasks     sync.WaitGroup

	mu      sync.Mutex
	changed chan struct{}
	told    map[item]streams.Outcome
	stored  int
	failed  int // told NotStored or Unknown, or refused
	sent    []int
	reads   map[item]int
	read    int
	lastOf  []int               // by sender: the last number read
	entries [][]streams.Entry   // by partition
	faults  map[string]struct{} // what is wrong, each once
}

type flowOptions struct {
	partitions, senders int
	// each bounds what a sender sends; 0 is without end.
	each int
	// size is that of an envelope, about.
	size int
	// timeout is the writers'. Default 10 s.
	timeout time.Duration
}

// window is how many sends of one sender may be without outcome.
const window = 20

func startFlow(t *testing.T, log Log, o flowOptions) *flow {
	t.Helper()
	if o.timeout == 0 {
		o.timeout = 10 * time.Second
	}
	f := &flow{
		t: t, log: log, o: o,
		placement: streams.Placement{Partitions: o.partitions},
		driver:    open(t, log),
		stop:      make(chan struct{}),
		changed:   make(chan struct{}),
		told:      make(map[item]streams.Outcome),
		sent:      make([]int, o.senders),
		reads:     make(map[item]int),
		lastOf:    make([]int, o.senders),
		entries:   make([][]streams.Entry, o.partitions),
		faults:    make(map[string]struct{}),
	}
	name := newName()
	for i := range o.partitions {
		f.tails = append(f.tails, streams.NewTail(streams.TailOptions{
			Driver: f.driver, Partition: i, Start: streams.First(),
			Handle: func(e streams.Entry) { f.handle(i, e) },
		}))
		f.writers = append(f.writers, streams.NewWriter(streams.WriterOptions[item]{
			Driver: f.driver, Partition: i, Name: name, Timeout: o.timeout,
			Settled: f.settle,
			Follows: func(failed, later *item) bool { return failed.sender == later.sender },
		}))
	}
	for sender := range o.senders {
		f.tasks.Go(func() { f.send(sender) })
	}
	f.tasks.Go(f.watch)
	t.Cleanup(f.end)
	return f
}

// address is what a sender sends to; nobody else does.
func (f *flow) address(sender int) string { return fmt.Sprintf("ag::flow::%d", sender) }

func (f *flow) partition(sender int) int { return f.placement.Of(f.address(sender)) }

func (f *flow) send(sender int) {
	w := f.writers[f.partition(sender)]
	padding := strings.Repeat("x", f.o.size)
	for n := 1; f.o.each == 0 || n <= f.o.each; n++ {
		i := item{sender, n}
		f.mu.Lock()
		f.sent[sender] = n
		f.mu.Unlock()
		if !f.waitFor(func() bool { return f.settledOf(sender) >= n-window }) {
			return
		}
		envelope := fmt.Appendf(nil, "%s %d %d %s", f.address(sender), sender, n, padding)
		for {
			err := w.Append(envelope, i)
			if err == nil {
				break
			}
			// Refused is surely not stored: the same send is tried again.
			if !errors.Is(err, streams.ErrFull) && !errors.Is(err, streams.ErrUnavailable) {
				f.wrong("append: %v", err)
				return
			}
			f.mu.Lock()
			f.failed++
			f.announce()
			f.mu.Unlock()
			select {
			case <-time.After(5 * time.Millisecond):
			case <-f.stop:
				return
			}
		}
	}
}

// settledOf returns up to which number all sends of a sender have an outcome.
func (f *flow) settledOf(sender int) int {
	n := max(f.sent[sender]-window-1, 0)
	for f.told[item{sender, n + 1}] != 0 {
		n++
	}
	return n
}

func (f *flow) settle(items []item, outcome streams.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, i := range items {
		before := f.told[i]
		if before != 0 && !(before == streams.Unknown && outcome == streams.Stored) {
			f.wrongly("send %v was told %v, then %v", i, before, outcome)
		}
		f.told[i] = outcome
		if outcome == streams.Stored {
			f.stored++
		} else {
			f.failed++
		}
	}
	f.announce()
}

func (f *flow) handle(partition int, e streams.Entry) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if list := f.entries[partition]; len(list) > 0 && list[len(list)-1].Offset >= e.Offset {
		f.wrongly("offset %d is handed on after %d", e.Offset, list[len(list)-1].Offset)
	}
	f.entries[partition] = append(f.entries[partition], e)
	it := streams.Open(e.Data)
	for it.Next() {
		var i item
		var address string
		if isName(string(it.Bytes())) {
			continue // of readAll
		}
		if _, err := fmt.Sscan(string(it.Bytes()), &address, &i.sender, &i.n); err != nil {
			f.wrongly("envelope %.60q: %v", it.Bytes(), err)
			continue
		}
		if f.reads[i]++; f.reads[i] > 1 {
			f.wrongly("send %v was read %d times", i, f.reads[i])
			continue
		}
		f.read++
		if i.n <= f.lastOf[i.sender] {
			f.wrongly("of sender %d, %d was read after %d", i.sender, i.n, f.lastOf[i.sender])
		}
		f.lastOf[i.sender] = i.n
	}
	if it.Damaged() || it.Skipped() > 0 {
		f.wrongly("the entry at %d is damaged", e.Offset)
	}
	f.announce()
}

// watch does what a tail cannot know by itself: when what is stored does not
// come, it resets the tails.
func (f *flow) watch() {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	read, still := 0, 0
	for {
		select {
		case <-f.stop:
			return
		case <-ticker.C:
		}
		f.mu.Lock()
		missing := f.read < f.stored
		if f.read != read || !missing {
			still = 0
		} else {
			still++
		}
		read = f.read
		f.mu.Unlock()
		if still >= 4 {
			still = 0
			for _, t := range f.tails {
				t.Reset()
			}
		}
	}
}

func (f *flow) announce() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *flow) wrong(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wrongly(format, args...)
}

// wrongly notes a fault; mu is held.
func (f *flow) wrongly(format string, args ...any) {
	if len(f.faults) < 20 {
		f.faults[fmt.Sprintf(format, args...)] = struct{}{}
	}
}

// waitFor waits until cond, which is called with the lock held, or until the
// flow ends; it reports which.
func (f *flow) waitFor(cond func() bool) bool { return f.wait(cond, nil) }

func (f *flow) wait(cond func() bool, giveUp <-chan time.Time) bool {
	for {
		f.mu.Lock()
		ok, changed := cond(), f.changed
		f.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-f.stop:
			return false
		case <-giveUp:
			return false
		}
	}
}

// await waits until cond and fails the test when that takes longer than limit.
func (f *flow) await(what string, limit time.Duration, cond func() bool) {
	f.t.Helper()
	if !f.wait(cond, time.After(limit)) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.t.Fatalf("waited %v in vain for %s: stored %d, failed %d, read %d, wrong %v",
			limit, what, f.stored, f.failed, f.read, f.faults)
	}
}

func (f *flow) awaitStored(n int) {
	f.t.Helper()
	f.await(fmt.Sprintf("%d stored sends", n), patience, func() bool { return f.stored >= n })
}

func (f *flow) awaitRead(n int) {
	f.t.Helper()
	f.await(fmt.Sprintf("%d read sends", n), patience, func() bool { return f.read >= n })
}

// awaitTrouble waits until somebody has been told that something failed after
// the call.
func (f *flow) awaitTrouble() {
	f.t.Helper()
	f.mu.Lock()
	failed := f.failed
	f.mu.Unlock()
	f.await("somebody to notice", patience, func() bool { return f.failed > failed })
}

// awaitRecovery waits until every sender has had a send stored, and read, that
// it made after the call.
func (f *flow) awaitRecovery(limit time.Duration) {
	f.t.Helper()
	f.mu.Lock()
	before := append([]int(nil), f.sent...)
	f.mu.Unlock()
	begin := time.Now()
	for sender, n := range before {
		f.await(fmt.Sprintf("sender %d to go on", sender), max(limit-time.Since(begin), time.Second), func() bool {
			for i := f.sent[sender]; i > n; i-- {
				if it := (item{sender, i}); f.told[it] == streams.Stored && f.reads[it] > 0 {
					return true
				}
			}
			return false
		})
	}
	f.t.Logf("everybody went on after %v", time.Since(begin).Round(time.Millisecond))
}

// finish ends the senders, closes the writers and checks the promises: what is
// Stored is read exactly once, what is NotStored never, what is Unknown at
// most once, by the tails and by a fresh reader; and in each sender's order.
func (f *flow) finish() {
	f.t.Helper()
	f.stopSending()
	for _, w := range f.writers {
		if err := w.Close(within(f.t)); err != nil {
			f.t.Errorf("closing a writer: %v", err)
		}
	}
	f.mu.Lock()
	for sender, n := range f.sent {
		// The last one may have been refused.
		for i := 1; i < n; i++ {
			if f.told[item{sender, i}] == 0 {
				f.wrongly("send %v has no outcome", item{sender, i})
			}
		}
	}
	f.mu.Unlock()
	fresh := f.readAfresh()
	for _, tail := range f.tails {
		tail.Close()
	}

	f.mu.Lock()
	defer f.mu.Unlock()
	counts := map[streams.Outcome]int{}
	for i, outcome := range f.told {
		counts[outcome]++
		switch reads := f.reads[i]; {
		case outcome == streams.Stored && reads != 1:
			f.wrongly("send %v is stored and was read %d times", i, reads)
		case outcome == streams.NotStored && reads > 0:
			f.wrongly("send %v is not stored and was read", i)
		}
	}
	for i := range f.reads {
		if f.told[i] == 0 {
			f.wrongly("send %v was read and has no outcome", i)
		}
	}
	for p, list := range fresh {
		tailed := map[uint64]string{}
		for _, e := range f.entries[p] {
			tailed[e.Offset] = string(e.Data)
		}
		for _, e := range list {
			if tailed[e.Offset] != string(e.Data) {
				f.wrongly("the entry at %d of partition %d was not handed on by the tail, or is another one now", e.Offset, p)
			}
		}
	}
	for what := range f.faults {
		f.t.Error(what)
	}
	f.t.Logf("outcomes: %v, read %d", counts, f.read)
}

// readAfresh reads all partitions with another driver and waits until the
// tails have come as far.
func (f *flow) readAfresh() [][]streams.Entry {
	f.t.Helper()
	d := open(f.t, f.log)
	defer func() { _ = d.Close() }()
	fresh := make([][]streams.Entry, f.o.partitions)
	giveUp := time.After(patience)
	for i, tail := range f.tails {
		fresh[i] = readAll(f.t, d, i)
		for n := len(fresh[i]); n > 0; {
			f.mu.Lock()
			list, changed := f.entries[i], f.changed
			f.mu.Unlock()
			if len(list) > 0 && list[len(list)-1].Offset >= fresh[i][n-1].Offset {
				break
			}
			select {
			case <-changed:
			case <-time.After(2 * time.Second):
				tail.Reset() // as in watch
			case <-giveUp:
				f.t.Fatalf("the tail of partition %d does not get to the end", i)
			}
		}
	}
	return fresh
}

func (f *flow) stopSending() {
	select {
	case <-f.stop:
	default:
		close(f.stop)
	}
	f.tasks.Wait()
}

// end stops what a failed case has left.
func (f *flow) end() {
	f.stopSending()
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, w := range f.writers {
		_ = w.Close(over)
	}
	for _, tail := range f.tails {
		tail.Close()
	}
}
