package router

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/streamstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// world is a router on a log in memory, with a store that remembers.
type world struct {
	t     *testing.T
	log   *streamstest.Memory
	store *memoryStore
	r     *Router
}

func setup(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, log: streamstest.NewMemory(1), store: &memoryStore{rows: map[string]store.Commit{}}}
	w.start(change...)
	return w
}

// start starts a router on the log that is there.
func (w *world) start(change ...func(*Options)) {
	w.t.Helper()
	driver := w.log.Driver()
	o := Options{
		Driver: driver, Placement: streams.Placement{Partitions: 1}, Positions: w.store,
		Logger: slog.New(slog.NewTextHandler(w.t.Output(), nil)),
	}
	for _, c := range change {
		c(&o)
	}
	r := New(o)
	w.r = r
	w.t.Cleanup(func() {
		w.log.HoldConfirms(false)
		w.log.Stall(false)
		w.log.Refuse(false)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = r.Close(ctx)
		_ = driver.Close()
	})
	select {
	case <-r.Ready():
	case <-time.After(patience):
		w.t.Fatal("the router does not become ready")
	}
}

// session is a sender and reader without a stream.
type session struct {
	w      *world
	name   string
	box    *delivery.Mailbox
	sender *Sender
	sub    *Subscription
	batch  delivery.Batch
	queue  []*aetherv1.DownstreamMessage
	gaps   []Gap
	left   bool
}

func (w *world) agent(spec string, o delivery.Options) *session {
	w.t.Helper()
	a, err := address.Agent("w", "i", spec)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &acl.Principal{Kind: acl.Agent, Address: a, Workspace: "w"}
	return w.join(p, a.String(), o, Reads{Exclusive: []string{a.String()}, Shared: []string{"ga::w"}})
}

func (w *world) worker(id string, o delivery.Options) *session {
	w.t.Helper()
	a, err := address.Task("w", "i", id)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &acl.Principal{Kind: acl.Task, Address: a, Workspace: "w"}
	return w.join(p, a.String(), o, Reads{Exclusive: []string{a.String()}, Workers: "tb::w::i"})
}

func (w *world) engine(set acl.WorkspaceSet) *session {
	w.t.Helper()
	p := &acl.Principal{Kind: acl.WorkflowEngine, Workspaces: set}
	return w.join(p, "wfe::1", delivery.Options{Mode: delivery.Client}, Reads{Events: set})
}

func (w *world) join(p *acl.Principal, name string, o delivery.Options, reads Reads) *session {
	w.t.Helper()
	s := &session{w: w, name: name, box: delivery.NewMailbox(o)}
	s.sender = w.r.NewSender(p, name, s.box, func() { w.t.Errorf("%s overflowed", name) })
	reads.Identity, reads.Epoch = name, 1
	reads.Gap = func(g Gap) { s.gaps = append(s.gaps, g) }
	sub, err := w.r.Subscribe(context.Background(), s.box, reads)
	if err != nil {
		w.t.Fatal(err)
	}
	s.sub = sub
	w.t.Cleanup(s.leave)
	return s
}

func (s *session) leave() {
	if !s.left {
		s.left = true
		s.sub.Leave(context.Background(), nil)
	}
}

func (s *session) send(to, text, request string) {
	s.w.t.Helper()
	if err := s.sender.Send(&aetherv1.SendMessage{TargetTopic: to, Payload: []byte(text), RequestId: request}); err != nil {
		s.w.t.Fatalf("send %q: %v", text, err)
	}
}

// pump takes what is there, feeding inboxes as a session's pump does.
func (s *session) pump() bool {
	if !s.box.Take(&s.batch) {
		return false
	}
	for _, f := range s.batch.Frames {
		var m aetherv1.DownstreamMessage
		if err := proto.Unmarshal(f, &m); err != nil {
			s.w.t.Fatal(err)
		}
		s.queue = append(s.queue, &m)
	}
	s.box.Written(&s.batch, 0)
	for _, in := range s.batch.Feed {
		s.w.r.Feed(in)
	}
	return true
}

// next returns the next frame that want takes; others are passed over.
func (s *session) next(want func(*aetherv1.DownstreamMessage) bool) *aetherv1.DownstreamMessage {
	s.w.t.Helper()
	timeout := time.After(patience)
	for {
		for len(s.queue) > 0 {
			m := s.queue[0]
			s.queue = s.queue[1:]
			if want(m) {
				return m
			}
		}
		if s.pump() {
			continue
		}
		select {
		case <-s.box.Wake():
		case <-timeout:
			s.w.t.Fatalf("%s waits in vain", s.name)
		}
	}
}

func (s *session) message() *aetherv1.IncomingMessage {
	s.w.t.Helper()
	return s.next(func(m *aetherv1.DownstreamMessage) bool { return m.GetMsg() != nil }).GetMsg()
}

func (s *session) wants(texts ...string) {
	s.w.t.Helper()
	for _, text := range texts {
		if got := string(s.message().GetPayload()); got != text {
			s.w.t.Fatalf("%s got %q, want %q", s.name, got, text)
		}
	}
}

func (s *session) answer() *aetherv1.DownstreamMessage {
	s.w.t.Helper()
	return s.next(func(m *aetherv1.DownstreamMessage) bool { return m.GetReceipt() != nil || m.GetError() != nil })
}

// quiet says that no message is there now.
func (s *session) quiet() {
	s.w.t.Helper()
	for s.pump() {
	}
	for _, m := range s.queue {
		if m.GetMsg() != nil {
			s.w.t.Fatalf("%s got %q", s.name, m.GetMsg().GetPayload())
		}
	}
}

func (s *session) ack(upTo uint64) {
	s.w.t.Helper()
	if err := s.box.Ack(upTo); err != nil {
		s.w.t.Fatal(err)
	}
}

// warm makes the session live and eligible: a first message to it and from it
// has gone through the log.
func (w *world) warm(from *session, to *session) {
	w.t.Helper()
	from.send(to.name, "warm", "warm")
	to.wants("warm")
	from.answer()
	w.settled()
}

// settled waits until the tail has shown everything that was appended.
func (w *world) settled() {
	w.t.Helper()
	p := w.r.parts[0]
	w.until(func() (bool, <-chan struct{}) {
		shown := p.nextEntry()
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.seen == p.seq, shown
	})
}

func (w *world) until(cond func() (bool, <-chan struct{})) {
	w.t.Helper()
	timeout := time.After(patience)
	for {
		ok, changed := cond()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			w.t.Fatal("waited in vain")
		}
	}
}

func client(window int) delivery.Options {
	return delivery.Options{Mode: delivery.Client, MaxUnacked: window}
}

func TestBacklogThenLive(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	const n = 2500
	for i := range n {
		a.send("ag::w::i::b", fmt.Sprint(i), "")
	}
	b := w.agent("b", client(100))
	for i := range n {
		m := b.message()
		if string(m.GetPayload()) != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, m.GetPayload())
		}
		b.ack(m.GetDeliveryId())
	}
	b.quiet()
}

// A backlog that has left the ring is read from the log, by one reader for
// all, while live traffic goes on, without overtaking (delivery rules C8, S1).
func TestC8CatchUpBesideTraffic(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.RingBytes = 20_000 })
	a := w.agent("a", client(0))
	const n, readers = 600, 5
	for i := range n {
		for r := range readers {
			a.send(fmt.Sprintf("ag::w::i::r%d", r), fmt.Sprint(i), "")
		}
	}
	w.settled()
	var list []*session
	for r := range readers {
		list = append(list, w.agent(fmt.Sprintf("r%d", r), client(7)))
	}
	for i := range n {
		a.send("ag::w::i::r0", fmt.Sprint(n+i), "")
		for _, s := range list {
			m := s.message()
			if string(m.GetPayload()) != fmt.Sprint(i) {
				t.Fatalf("%s: message %d is %q", s.name, i, m.GetPayload())
			}
			s.ack(m.GetDeliveryId())
		}
	}
	for i := range n {
		m := list[0].message()
		if string(m.GetPayload()) != fmt.Sprint(n+i) {
			t.Fatalf("live message %d is %q", i, m.GetPayload())
		}
		list[0].ack(m.GetDeliveryId())
	}
	if w.r.stats.CatchUps.Load() == 0 {
		t.Fatal("nothing was read from the log: the test shows nothing")
	}
}

// Delivery rule S3: a live delivery does not wait for the confirm, the receipt
// does.
func TestS3LiveBeforeConfirm(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	w.log.HoldConfirms(true)
	a.send("ag::w::i::b", "live", "r")
	m := b.message()
	if m.Position != nil {
		t.Fatal("a live delivery has a position")
	}
	a.quiet()
	if len(a.queue) > 0 {
		t.Fatalf("an answer before the confirm: %v", a.queue)
	}
	w.log.HoldConfirms(false)
	if a.answer().GetReceipt().GetRequestId() != "r" {
		t.Fatal("no receipt")
	}
	w.settled()
	b.quiet()
}

// Delivery rule S2: a session that joins while messages are on their way gets
// those by the tail first.
func TestS2JoinFence(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	b := w.agent("b", client(0))
	w.warm(a, b)
	b.ack(1)
	b.leave()
	w.log.Stall(true)
	a.send("ag::w::i::b", "before", "")
	b = w.agent("b", client(0))
	b.pump() // joins the tail: the log's end is reached
	a.send("ag::w::i::b", "after", "")
	b.quiet()
	w.log.Stall(false)
	b.wants("before", "after")
	w.settled()
	b.quiet()
}

// Delivery rule M2: the first message of a sender's session goes by the tail,
// later ones wait for it.
func TestM2Eligible(t *testing.T) {
	t.Parallel()
	w := setup(t)
	b := w.agent("b", client(0))
	b.pump()
	a := w.agent("a", client(0))
	w.log.Stall(true)
	a.send("ag::w::i::b", "first", "")
	a.send("ag::w::i::b", "second", "")
	b.quiet()
	w.log.Stall(false)
	b.wants("first", "second")
	w.settled()
	before := w.r.stats.Live.Load()
	a.send("ag::w::i::b", "third", "")
	if w.r.stats.Live.Load() != before+1 {
		t.Fatal("the sender does not become eligible")
	}
	b.wants("third")
}

// Delivery rule M3: while the tail is down nobody is handed anything live, and
// nothing is lost, repeated or overtaken.
func TestM3TailDown(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(10_000))
	w.warm(a, b)
	p := w.r.parts[0]
	want := 0
	for round := range 20 {
		for range 20 {
			a.send("ag::w::i::b", fmt.Sprint(want), "")
			want++
		}
		if round%4 == 1 {
			w.log.Drop()
		}
	}
	for i := range want {
		b.wants(fmt.Sprint(i))
	}
	w.until(func() (bool, <-chan struct{}) {
		shown := p.nextEntry()
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.handover, shown
	})
	w.settled()
	b.quiet()
	live := w.r.stats.Live.Load()
	a.send("ag::w::i::b", "x", "")
	b.wants("x")
	if w.r.stats.Live.Load() == live {
		t.Fatal("live delivery does not come back")
	}
}

// Delivery rules C1, S5: a session resumes after what is done, and gets what
// is not done again.
func TestC1Resume(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	for i := range 10 {
		a.send("ag::w::i::b", fmt.Sprint(i), "")
	}
	for range 10 {
		b.message()
	}
	b.ack(4)
	if err := b.box.AckOne(8); err != nil {
		t.Fatal(err)
	}
	b.leave()
	b = w.agent("b", client(0))
	b.wants("4", "5", "6", "7", "8", "9")
	b.ack(6)
	b.leave()
	b = w.agent("b", client(0))
	w.settled()
	b.pump()
	b.quiet()
}

// What a session was handed and did not finish is flagged when it comes again,
// what it never had is not.
func TestRepeatsAreFlagged(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	for i := range 6 {
		a.send("ag::w::i::b", fmt.Sprint(i), "")
	}
	b := w.agent("b", client(4))
	for range 4 {
		if m := b.message(); m.GetRedelivered() {
			t.Fatalf("flagged although it is new: %v", m)
		}
	}
	b.ack(2)
	b.leave()
	b = w.agent("b", client(0))
	for _, want := range []bool{true, true, false, false} {
		if m := b.message(); m.GetRedelivered() != want {
			t.Fatalf("%q: redelivered is %v", m.GetPayload(), m.GetRedelivered())
		}
	}
}

// A restart of the gateway loses nothing that is not done.
func TestRestart(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	for i := range 50 {
		a.send("ag::w::i::b", fmt.Sprint(i), fmt.Sprint(i))
	}
	for range 50 {
		a.answer()
	}
	b := w.agent("b", client(0))
	for range 30 {
		b.message()
	}
	b.ack(20)
	b.leave()
	a.leave()
	w.start()
	b = w.agent("b", client(0))
	for i := 20; i < 50; i++ {
		b.wants(fmt.Sprint(i))
	}
}

// Position 0 is a position: after it was acknowledged, nothing is repeated.
func TestPositionZero(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if err := w.store.Commit(context.Background(), []store.Commit{{Identity: "ag::w::i::b", Address: "ag::w::i::b", Position: 0, Epoch: 1}}); err != nil {
		t.Fatal(err)
	}
	b := w.agent("b", client(0))
	if at := b.sub.inboxes[0].At(); at != 0 {
		t.Fatalf("it begins after %d", at)
	}
	c := w.agent("c", client(0))
	if at := c.sub.inboxes[0].At(); at != none {
		t.Fatalf("a new one begins after %d", at)
	}
}

// Delivery rule C2: a position beyond the log's end is clamped and told.
func TestC2BeyondTheEnd(t *testing.T) {
	t.Parallel()
	w := setup(t)
	_ = w.store.Commit(context.Background(), []store.Commit{{Identity: "ag::w::i::b", Address: "ag::w::i::b", Position: 1 << 40, Epoch: 1}})
	b := w.agent("b", client(0))
	if len(b.gaps) != 1 || b.gaps[0].Reason != GapRecreated {
		t.Fatalf("told %v", b.gaps)
	}
	b.pump()
	a := w.agent("a", client(0))
	a.send("ag::w::i::b", "new", "")
	b.wants("new")
}

// Delivery rule P4: an entry that is not confirmed in time fails its sends,
// each with one answer, and is stored all the same when the log comes back.
func TestP4Timeout(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.PublishTimeout = 200 * time.Millisecond })
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	w.log.Stall(true)
	if err := a.sender.Send(&aetherv1.SendMessage{TargetTopic: "ag::w::i::c", Payload: []byte("x"), RequestId: "r1", MessageId: "id"}); err != nil {
		t.Fatal(err)
	}
	e := a.answer().GetError()
	if e.GetRequestId() != "r1" || !e.GetRetryable() || e.GetCode() != "ERR_PUBLISH_FAILED" && e.GetCode() != "ERR_UNAVAILABLE" {
		t.Fatalf("got %v", e)
	}
	w.log.Stall(false)
	w.settled()
	// The retry with the same id is stored once.
	for {
		err := a.sender.Send(&aetherv1.SendMessage{TargetTopic: "ag::w::i::c", Payload: []byte("x"), RequestId: "r2", MessageId: "id"})
		if err != nil {
			t.Fatal(err)
		}
		if r := a.answer().GetReceipt(); r != nil {
			if r.GetRequestId() != "r2" {
				t.Fatalf("got %v", r)
			}
			break
		}
	}
	w.settled()
	c := w.agent("c", client(0))
	c.wants("x")
	w.settled()
	c.pump()
	c.quiet()
}

// Delivery rule P6: a repeated message id is delivered once; with another
// payload it is refused; other senders and addresses have ids of their own.
func TestP6Idempotency(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	msg := func(to, text, request string) *aetherv1.SendMessage {
		return &aetherv1.SendMessage{TargetTopic: to, Payload: []byte(text), RequestId: request, MessageId: "same"}
	}
	w.log.HoldConfirms(true)
	for i := range 3 {
		if err := a.sender.Send(msg("ag::w::i::b", "x", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	w.log.HoldConfirms(false)
	duplicates := 0
	for range 3 {
		r := a.answer().GetReceipt()
		if r.GetMessageId() != "same" || r.GetStatus() != aetherv1.SendReceipt_STATUS_STORED {
			t.Fatalf("got %v", r)
		}
		if r.GetDuplicate() {
			duplicates++
		}
	}
	if duplicates != 2 {
		t.Fatalf("%d duplicates", duplicates)
	}
	if err := a.sender.Send(msg("ag::w::i::b", "x", "late")); err != nil {
		t.Fatal(err)
	}
	if r := a.answer().GetReceipt(); !r.GetDuplicate() {
		t.Fatalf("got %v", r)
	}
	if err := a.sender.Send(msg("ag::w::i::b", "other", "r")); err == nil || err.Code != "ERR_INVALID_ARGUMENT" {
		t.Fatalf("got %v", err)
	}
	if err := b.sender.Send(msg("ag::w::i::b", "from b", "r")); err != nil {
		t.Fatal(err)
	}
	b.wants("x", "from b")
	w.settled()
	b.quiet()
}

func TestIdempotencyIsBounded(t *testing.T) {
	t.Parallel()
	var d idempotency
	now := time.Now()
	for s := range 70 {
		key := pair{fmt.Sprint(s), "to"}
		for i := range idsPerPair + 10 {
			d.add(key, fmt.Sprint(i), 1, now)
		}
	}
	total := 0
	for _, table := range d.pairs {
		inOrder := 0
		for r := table.oldest; r != nil; r = r.newerHere {
			inOrder++
		}
		if len(table.records) > idsPerPair || inOrder != len(table.records) {
			t.Fatalf("%d records in a table, %d in order", len(table.records), inOrder)
		}
		total += len(table.records)
	}
	if total > maxIDs || total != d.total {
		t.Fatalf("%d records, counted %d", total, d.total)
	}
	last := pair{"69", "to"}
	if d.find(last, "9") != nil || d.find(last, "4105") == nil {
		t.Fatal("the wrong ones were forgotten")
	}
	d.expire(now.Add(idsFor + time.Second))
	if d.total != 0 || len(d.pairs) != 0 {
		t.Fatalf("%d left after their time", d.total)
	}
}

// Delivery rule S8: what is nacked comes again, flagged, at most five times,
// and then counts as done.
func TestS8Attempts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	a.send("ag::w::i::b", "bad", "")
	a.send("ag::w::i::b", "good", "")
	var seen []string
	for attempt := 1; attempt <= 5; attempt++ {
		m := b.message()
		for string(m.GetPayload()) == "good" {
			seen = append(seen, "good")
			if err := b.box.AckOne(m.GetDeliveryId()); err != nil {
				t.Fatal(err)
			}
			m = b.message()
		}
		if m.GetRedelivered() != (attempt > 1) {
			t.Fatalf("attempt %d: redelivered is %v", attempt, m.GetRedelivered())
		}
		n, err := b.box.Nack(m.GetDeliveryId(), true)
		if err != nil {
			t.Fatal(err)
		}
		w.r.Nacked(n)
	}
	if w.r.stats.GivenUp.Load() != 1 || len(seen) != 1 {
		t.Fatalf("given up %d, good ones %v", w.r.stats.GivenUp.Load(), seen)
	}
	b.leave()
	b = w.agent("b", client(0))
	w.settled()
	b.pump()
	b.quiet()
}

// Delivery rule T1: each message goes to one worker, within its credit; what a
// worker leaves unfinished goes to another.
func TestT1Workers(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	one, two := w.worker("1", client(3)), w.worker("2", client(3))
	const n = 20
	for i := range n {
		a.send("tb::w::i", fmt.Sprint(i), "")
	}
	got := map[string]int{}
	take := func(s *session) {
		m := s.message()
		got[string(m.GetPayload())]++
		s.ack(m.GetDeliveryId())
	}
	for range 5 {
		take(one)
		take(two)
	}
	one.leave()
	for len(got) < n {
		take(two)
	}
	for text, times := range got {
		if times > 2 {
			t.Errorf("%s came %d times", text, times)
		}
	}
}

func TestWorkersNobodyListens(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	a.send("tb::w::i", "lost", "r")
	if a.answer().GetReceipt() == nil {
		t.Fatal("no receipt")
	}
	w.settled()
	one := w.worker("1", client(3))
	a.send("tb::w::i", "kept", "")
	one.wants("kept")
}

func TestShared(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b, c := w.agent("a", client(0)), w.agent("b", client(0)), w.agent("c", client(0))
	a.send("ga::w", "all", "r")
	a.answer()
	for _, s := range []*session{b, c} {
		if m := s.message(); string(m.GetPayload()) != "all" || m.GetDeliveryId() != 0 || m.Position == nil {
			t.Fatalf("got %v", m)
		}
	}
	w.settled()
	a.quiet()
	late := w.agent("d", client(0))
	w.settled()
	late.pump()
	late.quiet()
}

// An engine for all workspaces and one for some heed each other's positions.
func TestEventPositions(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	event := func(text string) {
		if err := a.sender.Send(&aetherv1.SendMessage{TargetTopic: "event::w", Payload: []byte(text), MessageType: aetherv1.MessageType_MESSAGE_TYPE_EVENT}); err != nil {
			t.Fatal(err)
		}
	}
	event("1")
	event("2")
	all := w.engine(acl.All())
	all.wants("1", "2")
	all.ack(1)
	all.leave()
	some := w.engine(acl.Workspaces("w"))
	some.wants("2")
	some.ack(1)
	event("3")
	some.wants("3")
	some.leave()
	all = w.engine(acl.All())
	all.wants("3")
	all.ack(1)
	w.settled()
	all.quiet()
}

// Delivery rule S7: a session that ends waits for the tail, so that what it
// was given live and acknowledged is committed, and comes no second time.
func TestS7Leave(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	for round := range 10 {
		b := w.agent("b", client(0))
		b.pump()
		for i := range 3 {
			text := fmt.Sprintf("%d.%d", round, i)
			a.send("ag::w::i::b", text, "")
			b.wants(text)
			b.ack(uint64(i + 1))
		}
		b.leave()
	}
	if w.r.stats.Live.Load() == 0 {
		t.Fatal("nothing was live: the test shows nothing")
	}
}

// A committed position never falls and is not committed without need.
func TestCommit(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	b.ack(1)
	w.r.commit(context.Background())
	first := w.store.at("ag::w::i::b")
	if first == nil {
		t.Fatal("not committed")
	}
	w.r.commit(context.Background())
	if w.store.calls() != 1 {
		t.Fatalf("%d statements for nothing new", w.store.calls())
	}
	w.store.fail(true)
	a.send("ag::w::i::b", "x", "")
	b.wants("x")
	w.settled()
	b.ack(2)
	w.r.commit(context.Background())
	w.store.fail(false)
	w.r.commit(context.Background())
	if second := w.store.at("ag::w::i::b"); second.Position <= first.Position {
		t.Fatalf("after a failure it stays at %d", second.Position)
	}
}

func TestMetricStamp(t *testing.T) {
	t.Parallel()
	metric := func(change func(*aetherv1.Metric)) []byte {
		m := &aetherv1.Metric{Entries: []*aetherv1.MetricEntry{{Name: "tokens", Qty: 1}}, Metadata: map[string]string{"workspace": "forged"}}
		change(m)
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	out, refused := stampMetric(metric(func(*aetherv1.Metric) {}), "w")
	var m aetherv1.Metric
	if refused != nil || proto.Unmarshal(out, &m) != nil || m.GetMetadata()["workspace"] != "w" {
		t.Fatalf("%v, %v", &m, refused)
	}
	for _, c := range []struct {
		name    string
		payload []byte
		want    string
	}{
		{"not a metric", []byte{0xff}, "ERR_METRIC_INVALID"},
		{"empty", metric(func(m *aetherv1.Metric) { m.Entries = nil }), "ERR_METRIC_EMPTY"},
		{"no name", metric(func(m *aetherv1.Metric) { m.Entries[0].Name = "" }), "ERR_METRIC_INVALID_ENTRY"},
		{"not a number", metric(func(m *aetherv1.Metric) { m.Entries[0].Qty = math.NaN() }), "ERR_METRIC_INVALID_ENTRY"},
		{"infinite", metric(func(m *aetherv1.Metric) { m.Entries[0].Qty = math.Inf(-1) }), "ERR_METRIC_INVALID_ENTRY"},
		{"too many", metric(func(m *aetherv1.Metric) {
			for range 1024 {
				m.Entries = append(m.Entries, m.Entries[0])
			}
		}), "ERR_METRIC_INVALID"},
		{"too much metadata", metric(func(m *aetherv1.Metric) {
			for i := range 64 {
				m.Metadata[fmt.Sprint(i)] = ""
			}
		}), "ERR_METRIC_INVALID"},
	} {
		if _, err := stampMetric(c.payload, "w"); err == nil || string(err.Code) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestSubject(t *testing.T) {
	t.Parallel()
	for subject, ok := range map[string]bool{
		"": true, "a": true, "run.v1.delta": true, "a..b": false, ".a": false, "a.": false, ".": false,
		strings.Repeat("a", 256): true, strings.Repeat("a", 257): false,
		strings.Repeat("a.", 19) + "a": true, strings.Repeat("a.", 20) + "a": false,
	} {
		if err := checkSubject(subject); (err == nil) != ok {
			t.Errorf("%q: %v", subject, err)
		}
	}
}

func TestReceiptSameAsGenerated(t *testing.T) {
	t.Parallel()
	for _, duplicate := range []bool{false, true} {
		for _, request := range []string{"", "r", strings.Repeat("r", 200)} {
			var m aetherv1.DownstreamMessage
			if err := proto.Unmarshal(appendReceipt(nil, request, "m", duplicate), &m); err != nil {
				t.Fatal(err)
			}
			want := &aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Receipt{Receipt: &aetherv1.SendReceipt{
				RequestId: request, MessageId: "m", Status: aetherv1.SendReceipt_STATUS_STORED, Duplicate: duplicate,
			}}}
			if !proto.Equal(&m, want) {
				t.Errorf("got %v", &m)
			}
		}
	}
}
