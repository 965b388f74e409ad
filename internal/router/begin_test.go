package router

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/streams"
)

// traffic stores messages for others, more than the ring has room for.
func (w *world) traffic(from, to *session, n int) {
	w.t.Helper()
	for i := range n {
		from.send(to.name, fmt.Sprint(i), "traffic")
		from.receipts(1)
		to.ack(to.message().GetDeliveryId())
	}
	w.settled()
}

// stamped stores a message that some gateway published without a note.
func (w *world) stamped(to, text string, at time.Time) {
	w.t.Helper()
	e := envelope.Envelope{
		Source: "us::u::1", Topic: to, Payload: []byte(text), Origin: 7, Seq: uint64(len(w.log.Entries(0))), TimestampMS: at.UnixMilli(),
	}
	w.foreign(streams.AppendEnvelope(streams.BeginEntry(nil), e.Append(nil)))
}

func (s *session) live() bool { return s.sub.inboxes[0].Fed() == delivery.FedByTail }

// Delivery rule C4: an identity without note and position has no mail. It
// begins at the end at once, whatever is in the partition.
func TestC4NewIdentitiesStartAtOnce(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.RingBytes = 1000 })
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.traffic(a, b, 100)
	before := w.r.stats.CatchUps.Load()
	var list []*session
	for i := range 200 {
		list = append(list, w.agent(fmt.Sprintf("n%d", i), client(0)))
	}
	for _, s := range list {
		s.pump()
		if !s.live() {
			t.Fatalf("%s is not live", s.name)
		}
	}
	if n := w.r.stats.CatchUps.Load() - before; n != 0 {
		t.Fatalf("%d passes over the log", n)
	}
	for _, s := range list {
		a.send(s.name, "hello", "")
		s.wants("hello")
	}
}

// The same with mail for each: they share at most two readers of the partition
// (delivery rule C8), and read from their notes on.
func TestC4NewIdentitiesWithMail(t *testing.T) {
	t.Parallel()
	counted := &countingDriver{}
	w := setup(t, func(o *Options) {
		o.RingBytes = 1000
		counted.Driver = o.Driver
		o.Driver = counted
	})
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	const n = 200
	for i := range n {
		a.send(fmt.Sprintf("ag::w::i::n%d", i), "mail", "r")
		a.receipts(1)
		if i%10 == 0 {
			w.traffic(a, b, 5)
		}
	}
	counted.reset()
	var list []*session
	for i := range n {
		list = append(list, w.agent(fmt.Sprintf("n%d", i), client(0)))
	}
	for _, s := range list {
		s.wants("mail")
	}
	if most := counted.most(); most > readerPasses {
		t.Fatalf("%d readers at a time", most)
	}
	w.settled()
	for _, s := range list {
		s.pump()
		s.quiet()
	}
}

// countingDriver counts the consumers that are open at a time.
type countingDriver struct {
	streams.Driver
	mu         sync.Mutex
	open, high int
}

func (d *countingDriver) OpenConsumer(ctx context.Context, n int, from streams.Start, handle func(streams.Entry)) (streams.Consumer, error) {
	c, err := d.Driver.OpenConsumer(ctx, n, from, handle)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open++
	d.high = max(d.high, d.open)
	return &countedConsumer{Consumer: c, d: d}, nil
}

func (d *countingDriver) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open, d.high = 0, 0
}

func (d *countingDriver) most() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.high
}

type countedConsumer struct {
	streams.Consumer
	d    *countingDriver
	once sync.Once
}

func (c *countedConsumer) Close() error {
	c.once.Do(func() {
		c.d.mu.Lock()
		defer c.d.mu.Unlock()
		c.d.open--
	})
	return c.Consumer.Close()
}

// Row 4 of what others get wrong: an identity that was never connected gets
// exactly what was sent to it before, and nothing of it again.
func TestC4TheFirstMail(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.RingBytes = 500 })
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.traffic(a, b, 20)
	var texts []string
	for i := range 10 {
		texts = append(texts, fmt.Sprint("mail ", i))
		a.send(absent, texts[i], "r")
		a.receipts(1)
	}
	w.traffic(a, b, 20)
	c := w.agent("absent", client(0))
	c.wants(texts...)
	c.ack(10)
	w.settled()
	c.quiet()
	c.leave()
	c = w.agent("absent", client(0))
	w.settled()
	c.pump()
	c.quiet()
	if told := c.told(); len(told) != 0 {
		t.Errorf("told %v", told)
	}
}

// Row 5: connect, receive 1, leave; connect, leave; connect, send 1: it arrives.
func TestC5IdleReconnects(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	b := w.agent("b", client(0))
	a.send(b.name, "1", "r")
	b.wants("1")
	b.ack(1)
	a.receipts(1)
	b.leave()
	for range 3 {
		b = w.agent("b", client(0))
		b.pump()
		b.leave()
	}
	b = w.agent("b", client(0))
	a.send(b.name, "2", "")
	b.wants("2")
	b.ack(1)
	b.leave()
	a.send(b.name, "3", "r")
	a.receipts(1)
	b = w.agent("b", client(0))
	b.wants("3")
	b.quiet()
}

// Delivery rule C4: where the first session of an identity began is kept, so
// that what came to it unnoted is not lost with its gateway.
func TestC4FirstPositionIsKept(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.settled()
	a.send(b.name, "1", "r")
	a.receipts(1)
	b.wants("1")
	if _, noted := w.store.noteOf(b.name); noted {
		t.Fatal("noted although it is held: the test shows nothing")
	}
	a.leave()
	b.left = true // its gateway is gone
	w.start()
	b = w.agent("b", client(0))
	b.wants("1")
}

// Delivery rule C5: after a clean end what was stamped until the end could be
// known everywhere is read, noted or not; then it goes on at the note.
func TestC5CleanEnd(t *testing.T) {
	t.Parallel()
	clock := newClock()
	w := setup(t, func(o *Options) { o.RingBytes, o.Now = 500, clock.now })
	w.store.now = clock.now
	a, b, c := w.agent("a", client(0)), w.agent("b", client(0)), w.agent("absent", client(0))
	w.warm(a, c)
	c.ack(1)
	w.settled()
	c.leave()
	if m, _ := w.store.Mark(context.Background(), absent, absent); !m.Clean {
		t.Fatal("it did not end clean: the test shows nothing")
	}
	w.traffic(a, b, 5)
	w.stamped(absent, "unnoted", clock.now().Add(w.r.cleanWindow-time.Second))
	w.traffic(a, b, 5)
	clock.add(time.Hour)
	w.traffic(a, b, 100)
	w.stamped(absent, "foreign to the rules", clock.now()) // shows where nothing is read
	w.traffic(a, b, 100)
	a.send(absent, "noted", "r")
	a.receipts(1)
	w.traffic(a, b, 100)
	c = w.agent("absent", client(0))
	c.wants("unnoted", "noted")
	w.eventually(func() bool { c.pump(); return c.live() })
	c.quiet()

	// Without mail it goes on at the end.
	c.ack(2)
	w.eventually(func() bool { _, noted := w.store.noteOf(absent); return !noted })
	w.settled()
	c.leave()
	clock.add(time.Hour)
	w.traffic(a, b, 100)
	w.stamped(absent, "foreign to the rules", clock.now())
	w.traffic(a, b, 100)
	c = w.agent("absent", client(0))
	w.eventually(func() bool { c.pump(); return c.live() })
	c.quiet()
}

// Delivery rule C5: after an end that was not clean everything is read.
func TestC5UncleanEnd(t *testing.T) {
	t.Parallel()
	clock := newClock()
	w := setup(t, func(o *Options) { o.RingBytes, o.Now = 500, clock.now })
	w.store.now = clock.now
	a, b, c := w.agent("a", client(0)), w.agent("b", client(0)), w.agent("absent", client(0))
	w.warm(a, c)
	a.send(c.name, "not done", "r")
	a.receipts(1)
	c.wants("not done")
	c.ack(1)
	w.settled()
	c.leave()
	if m, _ := w.store.Mark(context.Background(), absent, absent); m.Clean {
		t.Fatal("it ended clean: the test shows nothing")
	}
	clock.add(time.Hour)
	w.traffic(a, b, 50)
	w.stamped(absent, "unnoted", clock.now())
	w.traffic(a, b, 50)
	c = w.agent("absent", client(0))
	c.wants("not done", "unnoted")
}

// Delivery rule C5: a note never sets an identity back.
func TestC5NeverBelowThePosition(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.RingBytes = 500 })
	a, b, c := w.agent("a", client(0)), w.agent("b", client(0)), w.agent("absent", client(0))
	w.warm(a, c)
	c.ack(1)
	w.settled()
	c.leave()
	w.store.set(func() { w.store.notes[absent] = 0 })
	w.traffic(a, b, 50)
	a.send(absent, "new", "r")
	a.receipts(1)
	c = w.agent("absent", client(0))
	c.wants("new")
	w.settled()
	c.quiet()
}

// Delivery rule C6: a note goes when everything up to the end, as it was when
// the reader came there, is committed; not before, and not if it has changed.
func TestC6NoteIsDeleted(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	for i := range 2 {
		a.send(absent, fmt.Sprint(i), "r")
		a.receipts(1)
	}
	w.settled()
	ctx := context.Background()
	c := w.agent("absent", client(0))
	c.wants("0", "1")
	w.eventually(func() bool { c.pump(); return c.live() })
	c.ack(1)
	w.r.commit(ctx)
	if _, ok := w.store.noteOf(absent); !ok {
		t.Fatal("deleted before everything was done")
	}
	w.store.set(func() { w.store.notes[absent] = 0 }) // somebody has lowered it
	c.ack(2)
	w.r.commit(ctx)
	if _, ok := w.store.noteOf(absent); !ok {
		t.Fatal("deleted although it had changed")
	}
	w.settled()
	// It has been read anew, and goes when the end of that time is done.
	w.eventually(func() bool { _, ok := w.store.noteOf(absent); return !ok })
}

// Delivery rule C6: nobody is to wait for traffic of its own to get rid of a
// note, also of one whose message was never stored.
func TestC6NoteWithoutMail(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.store.set(func() { w.store.notes[absent] = 0 })
	c := w.agent("absent", client(0))
	w.eventually(func() bool { c.pump(); return c.live() })
	w.eventually(func() bool { _, ok := w.store.noteOf(absent); return !ok })
	if row := w.store.at(absent); row == nil {
		t.Fatal("deleted without a position")
	}
}

// gatedDriver holds the tail back.
type gatedDriver struct {
	streams.Driver
	gate chan struct{}
}

func (d *gatedDriver) OpenConsumer(ctx context.Context, n int, from streams.Start, handle func(streams.Entry)) (streams.Consumer, error) {
	if _, tail := from.Time(); !tail {
		return d.Driver.OpenConsumer(ctx, n, from, handle)
	}
	return d.Driver.OpenConsumer(ctx, n, from, func(e streams.Entry) {
		<-d.gate
		handle(e)
	})
}

// Delivery rule C2: a position that another gateway's tail has reached is not
// beyond the log's end because ours is slower.
func TestC2TheTailIsMerelyBehind(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{}, 1000)
	gate <- struct{}{} // the first marker
	w := setup(t, func(o *Options) { o.Driver = &gatedDriver{o.Driver, gate} })
	t.Cleanup(func() { close(gate) })
	w.stamped(absent, "done", time.Now())
	w.stamped(absent, "open", time.Now())
	at := w.inLog(absent)
	_ = w.store.Commit(context.Background(), []store.Commit{{Identity: absent, Address: absent, Position: at[0], Epoch: 1}})
	c := w.agent("absent", client(0))
	c.pump()
	if c.live() {
		t.Fatal("it is live before it is known how far the log reaches")
	}
	for range 500 {
		gate <- struct{}{}
	}
	c.wants("open")
	if told := c.told(); len(told) != 0 {
		t.Fatalf("told %v", told)
	}
}

// Delivery rule C2: in a log that was made anew nothing of what comes after the
// session began is passed over, and a note is believed.
func TestC2Recreated(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	a.send(absent, "noted", "r")
	a.receipts(1)
	w.settled()
	_ = w.store.Commit(context.Background(), []store.Commit{{Identity: absent, Address: absent, Position: 1 << 40, Epoch: 1}})
	c := w.agent("absent", client(0))
	a.send(absent, "new", "")
	c.wants("noted", "new")
	if told := c.told(); len(told) != 1 || told[0].Reason != GapRecreated {
		t.Fatalf("told %v", told)
	}
}

// Delivery rule C2: a note of a log that is gone says nothing of where mail lies
// in the one that was made anew. All of that is read.
func TestC2NoteBeyondTheEnd(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	w.stamped(absent, "unnoted", time.Now()) // by a gateway that had noted it in the old log
	w.settled()
	w.store.set(func() { w.store.notes[absent] = 1 << 40 })
	c := w.agent("absent", client(0))
	a.send(absent, "new", "")
	c.wants("unnoted", "new")
	c.toldOnce(GapRecreated, absent)
	c.ack(2)
	w.settled()
	w.eventually(func() bool { _, noted := w.store.noteOf(absent); return !noted })
	c.leave()
	c = w.agent("absent", client(0))
	a.send(absent, "later", "")
	c.wants("later")
	if told := c.told(); len(told) != 0 {
		t.Errorf("the next session is told %v", told)
	}
}

// The two kinds of engines heed each other: what one of them was handed without
// a note is not passed over by the other.
func TestC4Engines(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	all := w.engine(acl.All())
	w.stamped("event::w", "1", time.Now()) // to a held address, so without a note
	all.wants("1")
	all.left = true // its gateway is gone, nothing was committed but the beginning
	a.leave()
	w.start()
	some := w.engine(acl.Workspaces("w"))
	some.wants("1")
	some.ack(1)
	some.leave()
	all = w.engine(acl.All())
	w.settled()
	all.pump()
	all.quiet()
}
