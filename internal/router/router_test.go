package router

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
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

// A pool that could not reach Redis tries once a second, and notices then that
// it is closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

// world is a router on a log in memory, with a store that remembers.
type world struct {
	t     *testing.T
	log   *streamstest.Memory
	store *memoryStore
	r     *Router
	epoch atomic.Uint64
}

func setup(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, log: streamstest.NewMemory(1), store: newMemoryStore()}
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

// left makes it known that an agent has been here, and has read up to the first
// message of the log.
func (w *world) left(spec string) {
	address := "ag::w::i::" + spec
	_ = w.store.Commit(context.Background(), []store.Commit{{Identity: address, Address: address, Position: 0, Epoch: 1}})
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
	left   bool

	mu   sync.Mutex
	gaps []Gap
}

// told returns the gaps that it was told.
func (s *session) told() []Gap {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.gaps)
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
	s.sender = w.r.NewSender(p, name, reads.Lease, s.box, func() { w.t.Errorf("%s overflowed", name) })
	reads.Identity, reads.Lease.Epoch, reads.Workspace = name, w.epoch.Add(1), "w"
	reads.Gap = func(g Gap) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gaps = append(s.gaps, g)
	}
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
		s.sub.Leave(context.Background(), Leaving{})
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
		return p.seen == p.seq && len(p.lines.byKey) == 0, shown
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
