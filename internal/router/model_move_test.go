package router

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/streams"
)

// TestMoves has senders and receivers that move between two gateways on one
// log, whose tails, confirms and writes are slow at times, and checks what is
// promised to each pair of them: nothing lost, nothing twice, nothing overtaken
// (delivery rules M2, M3, P6, S2, S3), and a repeat of what was stored before
// the move answered as such.
func TestMoves(t *testing.T) {
	t.Parallel()
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	for i := range uint64(2) {
		t.Run(fmt.Sprint(seed+i), func(t *testing.T) {
			t.Parallel()
			m := newMoves(t, seed+i)
			m.run(*modelTime)
			m.check()
			if t.Failed() {
				t.Logf("again with -model.seed=%d", seed+i)
			}
		})
	}
}

const (
	moveSenders   = 3
	moveReceivers = 2
)

type moves struct {
	t     *testing.T
	seed  uint64
	gates [2]*world
	lags  [2]*lagging
	stop  chan struct{}
	// over is closed when every sender is done.
	over    chan struct{}
	session atomic.Int64

	mu       sync.Mutex
	given    map[string][]given // by receiver, in the order of delivery
	receipts map[moved]bool     // messages that were told to be stored
	repeats  map[attempt]bool   // attempts that were told to be duplicates of those
}

// moved is a message, attempt one way that it was sent.
type moved struct {
	from, to string
	n        int
}

type attempt struct {
	moved
	try string
}

type given struct {
	attempt
	session int64
}

// lagging is a gateway's way to the log, slow at times.
type lagging struct {
	streams.Driver
	tail, write atomic.Int64 // how long an entry takes
}

func (d *lagging) OpenConsumer(ctx context.Context, n int, from streams.Start, handle func(streams.Entry)) (streams.Consumer, error) {
	return d.Driver.OpenConsumer(ctx, n, from, func(e streams.Entry) {
		nap(&d.tail)
		handle(e)
	})
}

func (d *lagging) OpenProducer(ctx context.Context, n int, name string, confirmed func(uint64)) (streams.Producer, error) {
	p, err := d.Driver.OpenProducer(ctx, n, name, confirmed)
	return &laggingProducer{p, d}, err
}

type laggingProducer struct {
	streams.Producer
	d *lagging
}

func (p *laggingProducer) Send(id uint64, entry []byte) error {
	nap(&p.d.write)
	return p.Producer.Send(id, entry)
}

func nap(d *atomic.Int64) {
	if n := d.Load(); n > 0 {
		<-time.After(time.Duration(n))
	}
}

func newMoves(t *testing.T, seed uint64) *moves {
	m := &moves{
		t: t, seed: seed, stop: make(chan struct{}), over: make(chan struct{}),
		given: map[string][]given{}, receipts: map[moved]bool{}, repeats: map[attempt]bool{},
	}
	change := func(i int) func(*Options) {
		return func(o *Options) {
			m.lags[i] = &lagging{Driver: o.Driver}
			o.Driver, o.RingBytes, o.Logger, o.Presence = m.lags[i], 8000, nil, &crowd{}
		}
	}
	m.gates[0] = setup(t, change(0))
	m.gates[1] = m.gates[0].second(change(1))
	return m
}

func (m *moves) random(name string, n int) *rand.Rand {
	return rand.New(rand.NewPCG(m.seed, uint64(len(name))<<32|uint64(n)))
}

func (m *moves) run(d time.Duration) {
	var senders, others sync.WaitGroup
	for i := range moveSenders {
		senders.Go(func() { m.sender(i) })
	}
	for i := range moveReceivers {
		others.Go(func() { m.receiver(i) })
	}
	weather := make(chan struct{})
	go func() {
		defer close(weather)
		m.weather()
	}()
	<-time.After(d)
	close(m.stop)
	<-weather
	senders.Wait()
	close(m.over)
	others.Wait()
}

// weather changes what is slow.
func (m *moves) weather() {
	r := m.random("weather", 0)
	for {
		for i, lag := range m.lags {
			lag.tail.Store(int64(time.Duration([]int{0, 0, 3, 15}[r.IntN(4)]) * time.Millisecond))
			lag.write.Store(int64(time.Duration([]int{0, 0, 0, 20}[r.IntN(4)]) * time.Millisecond))
			if r.IntN(12) == 0 {
				m.gates[i].r.parts[0].tail.Reset()
			}
		}
		select {
		case <-time.After(time.Duration(20+r.IntN(60)) * time.Millisecond):
		case <-m.stop:
			for _, lag := range m.lags {
				lag.tail.Store(0)
				lag.write.Store(0)
			}
			return
		}
	}
}

// mover is a session.
type mover struct {
	box    *delivery.Mailbox
	sender *Sender
	sub    *Subscription
	r      *Router
	batch  delivery.Batch
}

func (m *moves) connect(gate int, name string, window int) (*mover, int64) {
	a, _ := address.Agent("w", "i", name)
	p := &acl.Principal{Kind: acl.Agent, Address: a, Workspace: "w"}
	n := m.session.Add(1)
	s := &mover{r: m.gates[gate].r, box: delivery.NewMailbox(client(window))}
	s.sender = s.r.NewSender(p, a.String(), presence.Lease{}, s.box, func() { m.t.Errorf("%s overflowed", a) })
	sub, err := s.r.Subscribe(context.Background(), s.box, Reads{Exclusive: []string{a.String()}, Identity: a.String(), Lease: presence.Lease{Epoch: uint64(n)}})
	if err != nil {
		m.t.Errorf("subscribe: %v", err)
		return nil, n
	}
	s.sub = sub
	return s, n
}

// frames takes what waits, for a while.
func (s *mover) frames(t *testing.T, patience time.Duration, each func(*aetherv1.DownstreamMessage)) bool {
	if !s.box.Take(&s.batch) {
		select {
		case <-s.box.Wake():
		case <-time.After(patience):
		}
		if !s.box.Take(&s.batch) {
			return false
		}
	}
	list := make([]*aetherv1.DownstreamMessage, len(s.batch.Frames))
	for i, f := range s.batch.Frames {
		list[i] = new(aetherv1.DownstreamMessage)
		if err := proto.Unmarshal(f, list[i]); err != nil {
			t.Errorf("a frame: %v", err)
		}
	}
	for _, in := range s.batch.Feed {
		s.r.Feed(in)
	}
	for _, d := range list {
		each(d)
	}
	return true
}

type outgoing struct {
	moved
	id   string
	told bool
}

// sender sends in order, moves, and sends again what has no receipt, in order
// and under the same ids. In a calm session it waits for all receipts before
// it moves; only there may a message be without an id.
func (m *moves) sender(i int) {
	r := m.random("sender", i)
	name := fmt.Sprint("ag::w::i::s", i)
	next, tries, gate := map[string]int{}, 0, 0
	var open, done []*outgoing
	for running := true; running || len(open) > 0; {
		select {
		case <-m.stop:
			running = false
		default:
		}
		calm := !running || r.IntN(2) == 0
		gate = (gate + 1 - r.IntN(4)/3) % len(m.gates)
		s, _ := m.connect(gate, fmt.Sprint("s", i), 0)
		if s == nil {
			return
		}
		waiting := map[string]*outgoing{}
		send := func(o *outgoing) {
			tries++
			try := fmt.Sprintf("%s %d", name, tries)
			waiting[try] = o
			err := s.sender.Send(&aetherv1.SendMessage{
				TargetTopic: o.to, Payload: []byte(fmt.Sprint(o.n)), MessageId: o.id, RequestId: try,
				Metadata: map[string]string{attemptKey: try},
			})
			if err != nil {
				m.t.Errorf("%s: %v", try, err)
			}
		}
		answer := func(d *aetherv1.DownstreamMessage) {
			try := d.GetReceipt().GetRequestId() + d.GetError().GetRequestId()
			o := waiting[try]
			if o == nil {
				return // what was sent to the sender itself: nothing
			}
			delete(waiting, try)
			if d.GetError() != nil {
				if calm {
					m.t.Errorf("%s: %v", try, d.GetError())
				}
				return
			}
			m.mu.Lock()
			if o.told && !d.GetReceipt().GetDuplicate() {
				m.t.Errorf("%s of %v was stored again after a receipt", try, o.moved)
			}
			m.receipts[o.moved] = true
			m.mu.Unlock()
			o.told = true
		}
		plain := calm && r.IntN(2) == 0
		for k := 0; k < 2 && len(done) > 0 && !plain; k++ {
			if o := done[max(0, len(done)-1-r.IntN(5))]; o.id != "" {
				send(o)
			}
		}
		for _, o := range open {
			send(o)
		}
		if !calm && r.IntN(2) == 0 {
			// What comes now is numbered, and stored late.
			for deadline := time.Now().Add(time.Second); len(waiting) > 0 && time.Now().Before(deadline); {
				s.frames(m.t, 5*time.Millisecond, answer)
			}
			m.lags[gate].write.Store(int64(100 * time.Millisecond))
		}
		for k := 0; running && k < 1+r.IntN(20); k++ {
			to := fmt.Sprint("ag::w::i::r", r.IntN(moveReceivers))
			next[to]++
			o := &outgoing{moved: moved{name, to, next[to]}}
			if !calm || !plain && r.IntN(3) > 0 {
				o.id = fmt.Sprint(to, next[to])
			}
			open = append(open, o)
			send(o)
			if r.IntN(4) == 0 {
				s.frames(m.t, time.Duration(r.IntN(4))*time.Millisecond, answer)
			}
		}
		limit := time.Duration(r.IntN(4)) * time.Millisecond
		for deadline := time.Now().Add(patience); calm && len(waiting) > 0; {
			s.frames(m.t, 5*time.Millisecond, answer)
			if time.Now().After(deadline) {
				m.t.Errorf("%s: %d sends have no answer", name, len(waiting))
				return
			}
		}
		if calm {
			limit = patience
		}
		if calm || r.IntN(3) > 0 {
			s.sender.Leave(limit)
		} else {
			// What the log was given is stored late, as that of a gateway that
			// was fenced.
			p := s.r.parts[0]
			p.mu.Lock()
			p.refuseAll(s.sender)
			p.mu.Unlock()
		}
		for s.frames(m.t, 0, answer) {
		}
		s.sub.Leave(context.Background(), Leaving{})
		kept := open[:0]
		for _, o := range open {
			if o.told {
				done = append(done, o)
			} else {
				kept = append(kept, o)
			}
		}
		open = kept
	}
}

func (m *moves) receiver(i int) {
	r := m.random("receiver", i)
	name := fmt.Sprint("r", i)
	for last := false; !last; {
		select {
		case <-m.over:
			last = true
		default:
		}
		s, n := m.connect(r.IntN(2), name, 1+r.IntN(50))
		if s == nil {
			return
		}
		life := time.After(time.Duration(10+r.IntN(150)) * time.Millisecond)
		for idle := 0; ; {
			got := s.frames(m.t, 5*time.Millisecond, func(d *aetherv1.DownstreamMessage) {
				msg := d.GetMsg()
				if msg == nil {
					return
				}
				g := given{session: n}
				g.from, g.to, g.try = msg.GetSourceTopic(), msg.GetTopic(), msg.GetMetadata()[attemptKey]
				_, _ = fmt.Sscan(string(msg.GetPayload()), &g.n)
				m.mu.Lock()
				m.given[name] = append(m.given[name], g)
				m.mu.Unlock()
				if err := s.box.Ack(msg.GetDeliveryId()); err != nil {
					m.t.Errorf("ack: %v", err)
				}
			})
			if idle++; got {
				idle = 0
			}
			if last && idle > 200 {
				break
			}
			if !last {
				select {
				case <-life:
				default:
					continue
				}
				break
			}
		}
		s.sub.Leave(context.Background(), Leaving{})
	}
}

func (m *moves) check() {
	t := m.t
	stored := map[moved][]string{} // the attempts, in the order of the log
	for _, e := range m.gates[0].log.Entries(0) {
		for it := streams.Open(e.Data); it.Next(); {
			var v envelope.View
			if err := v.Parse(it.Bytes()); err != nil {
				t.Fatal(err)
			}
			if v.Kind != envelope.Message {
				continue
			}
			o := moved{from: string(v.Source), to: string(v.Topic)}
			_, _ = fmt.Sscan(string(v.Payload), &o.n)
			try, _ := v.Meta(attemptKey)
			stored[o] = append(stored[o], string(try))
		}
	}
	for o := range m.receipts {
		if len(stored[o]) == 0 {
			t.Errorf("%v has a receipt and is not stored", o)
		}
	}
	isStored := func(a attempt) bool {
		for _, try := range stored[a.moved] {
			if try == a.try {
				return true
			}
		}
		return false
	}
	// In a session everything rises. In a later one what was acknowledged behind
	// a hole may come again, and what is new comes in order.
	times, repeats := map[moved]int{}, 0
	for name, list := range m.given {
		first, inSession, session := map[string]int{}, map[string]int{}, int64(0)
		for _, g := range list {
			if !isStored(g.attempt) {
				continue // handed over live, and taken back
			}
			if g.session != session {
				clear(inSession)
				session = g.session
			}
			if g.n <= inSession[g.from] {
				t.Errorf("%s, session %d: %d of %s after %d", name, session, g.n, g.from, inSession[g.from])
			}
			inSession[g.from] = max(inSession[g.from], g.n)
			if times[g.moved]++; times[g.moved] > 1 {
				repeats++
				continue
			}
			if g.n <= first[g.from] {
				t.Errorf("%s, session %d: %d of %s comes for the first time after %d", name, session, g.n, g.from, first[g.from])
			}
			first[g.from] = g.n
		}
	}
	if repeats > len(stored)/4 {
		t.Errorf("%d of %d messages came again", repeats, len(stored))
	}
	copies := 0
	for o, tries := range stored {
		copies += len(tries) - 1
		if times[o] == 0 {
			t.Errorf("%v was never delivered; it was stored as %q", o, tries)
		}
	}
	s1, s2 := &m.gates[0].r.stats, &m.gates[1].r.stats
	t.Logf("%d messages, %d copies, %d came again in a later session, %d sessions, live %d and %d, duplicates %d and %d, catch-ups %d and %d", len(stored), copies, repeats,
		m.session.Load(), s1.Live.Load(), s2.Live.Load(), s1.Duplicates.Load(), s2.Duplicates.Load(), s1.CatchUps.Load(), s2.CatchUps.Load())
	if s1.Copies.Load() < uint64(copies) || s2.Copies.Load() < uint64(copies) {
		t.Errorf("the gateways found %d and %d copies", s1.Copies.Load(), s2.Copies.Load())
	}
	if len(stored) < 50 {
		t.Error("little was stored: the test shows nothing")
	}
}
