package router

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/presence"
)

// peer is a session of the model.
type peer struct {
	m      *model
	n      int // of all sessions
	box    *delivery.Mailbox
	sender *Sender
	sub    *Subscription
	batch  delivery.Batch
}

func (m *model) connect(p *acl.Principal, o delivery.Options, reads Reads) *peer {
	s := &peer{m: m, box: delivery.NewMailbox(o)}
	m.mu.Lock()
	m.sessions++
	s.n = m.sessions
	m.mu.Unlock()
	name := p.Address.String()
	s.sender = m.w.r.NewSender(p, name, presence.Lease{}, s.box, func() { m.t.Errorf("%s overflowed", name) })
	reads.Identity, reads.Lease.Epoch = name, uint64(s.n)
	for {
		sub, err := m.w.r.Subscribe(context.Background(), s.box, reads)
		if err == nil {
			s.sub = sub
			return s
		}
		<-soon() // the store is away
	}
}

func (s *peer) leave() { s.sub.Leave(context.Background(), Leaving{}) }

// frames takes what waits, for a while.
func (s *peer) frames(patience time.Duration, each func(*aetherv1.DownstreamMessage)) bool {
	if !s.box.Take(&s.batch) {
		select {
		case <-s.box.Wake():
		case <-time.After(patience):
		}
		if !s.box.Take(&s.batch) {
			return false
		}
	}
	frames := make([]*aetherv1.DownstreamMessage, 0, len(s.batch.Frames))
	for _, f := range s.batch.Frames {
		d := new(aetherv1.DownstreamMessage)
		if err := proto.Unmarshal(f, d); err != nil {
			s.m.t.Errorf("a frame: %v", err)
		}
		frames = append(frames, d)
	}
	for _, in := range s.batch.Feed {
		s.m.w.r.Feed(in)
	}
	for _, d := range frames {
		each(d)
	}
	return true
}

// sender sends to everybody, and again what failed, in order and with the same
// message id.
func (m *model) sender(i int) {
	r := m.random("sender", i)
	a, _ := address.Agent("w", "i", fmt.Sprintf("s%d", i))
	p := &acl.Principal{Kind: acl.Agent, Address: a, Workspace: "w"}
	s := m.connect(p, client(0), Reads{Exclusive: []string{a.String()}})
	type message struct{ to, id string }
	var failed []message
	open, attempt, id := map[string]message{}, 0, 0
	send := func(msg message) {
		attempt++
		request := fmt.Sprintf("%s %s %d", msg.to, msg.id, attempt)
		err := s.sender.Send(&aetherv1.SendMessage{
			TargetTopic: msg.to, Payload: []byte(msg.id), RequestId: request, MessageId: msg.id,
			Metadata: map[string]string{attemptKey: fmt.Sprint(attempt)},
		})
		if err != nil {
			if err.Code != "ERR_UNAVAILABLE" {
				m.t.Errorf("%s: %v", request, err)
			}
			failed = append(failed, msg)
			return
		}
		open[request] = msg
	}
	settle := func(d *aetherv1.DownstreamMessage) {
		request := d.GetReceipt().GetRequestId() + d.GetError().GetRequestId()
		if request == "" {
			return
		}
		msg, ok := open[request]
		if !ok {
			m.t.Errorf("%s is answered twice", request)
			return
		}
		delete(open, request)
		if d.GetReceipt() != nil {
			m.mu.Lock()
			m.stored[msg.to+" "+msg.id] = true
			m.mu.Unlock()
			return
		}
		failed = append(failed, msg)
	}
	busy := 1 + int(m.seed/3%3)*8 // some schedules leave time to catch up
	running := true
	for running || len(open) > 0 || len(failed) > 0 {
		if running && len(failed) == 0 {
			for range 1 + r.IntN(busy) {
				id++
				to := fmt.Sprintf("ag::w::i::r%d", r.IntN(modelReceivers))
				if r.IntN(4) == 0 {
					to = workersTopic
				}
				send(message{to, fmt.Sprintf("s%d.%d", i, id)})
			}
			running = m.pause(time.Duration(r.IntN(8)) * time.Millisecond)
		}
		for s.frames(5*time.Millisecond, settle) && len(open) > 0 {
		}
		if len(open) > 0 || len(failed) == 0 {
			continue
		}
		if r.IntN(3) == 0 { // a new session of the same sender
			s.leave()
			s = m.connect(p, client(0), Reads{Exclusive: []string{a.String()}})
		}
		again := failed
		failed = nil
		for _, msg := range again {
			send(msg)
		}
		<-soon()
	}
	s.leave()
}

// saw notes a delivery.
func (s *peer) saw(msg *aetherv1.IncomingMessage) (name string, attempt int) {
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	_, _ = fmt.Sscan(msg.GetMetadata()[attemptKey], &attempt)
	name = fmt.Sprintf("%s %s %d", msg.GetTopic(), msg.GetPayload(), attempt)
	s.m.seen[name] = append(s.m.seen[name], sighting{s.n, msg.GetRedelivered()})
	return name, attempt
}

func (m *model) finish(name string) {
	at := m.clock.Add(1)
	m.mu.Lock()
	if m.done[name] == 0 {
		m.done[name] = at
	}
	m.mu.Unlock()
}

// consume reads, acknowledges and nacks until the schedule is over and nothing
// comes any more, or until it is time to leave. It returns what it is not done
// with.
func (s *peer) consume(r *rand.Rand, order, stay bool) (unfinished map[string]bool) {
	m := s.m
	unfinished = map[string]bool{}
	var life <-chan time.Time
	if !stay {
		life = time.After(time.Duration(20+r.IntN(300)) * time.Millisecond)
	}
	open := map[uint64]string{}
	var ids []uint64
	nacks := map[string]int{}
	last := map[string]int{} // by source
	limit := maxAttempts
	if !order {
		limit = groupAttempts
	}
	finish := func(name string) {
		m.finish(name)
		delete(unfinished, name)
	}
	ack := func(id uint64, one bool) {
		for _, other := range ids {
			if other == id || !one && other < id {
				if name, ok := open[other]; ok {
					finish(name)
					delete(open, other)
				}
			}
		}
		var err error
		if one {
			err = s.box.AckOne(id)
		} else {
			err = s.box.Ack(id)
		}
		if err != nil {
			m.t.Errorf("ack of %d: %v", id, err)
		}
	}
	idle := 0
	for {
		got := s.frames(5*time.Millisecond, func(d *aetherv1.DownstreamMessage) {
			msg := d.GetMsg()
			if msg == nil {
				return
			}
			name, n := s.saw(msg)
			if order && !msg.GetRedelivered() {
				if n <= last[msg.GetSourceTopic()] {
					m.t.Errorf("session %d: %s after %d", s.n, name, last[msg.GetSourceTopic()])
				}
				last[msg.GetSourceTopic()] = n
			}
			open[msg.GetDeliveryId()] = name
			unfinished[name] = true
			ids = append(ids, msg.GetDeliveryId())
		})
		switch {
		case got:
			idle = 0
		case m.ended.Load():
			if idle++; len(open) == 0 && idle > 100 {
				return unfinished
			}
		}
		for len(ids) > 0 && open[ids[0]] == "" {
			ids = ids[1:]
		}
		for id, name := range open {
			switch n := r.IntN(12); {
			case m.ended.Load() || n < 3:
				ack(id, true)
			case n == 3 && ids[0] == id:
				ack(id, false)
			case n == 4:
				nacks[name]++
				if nacks[name] >= limit {
					finish(name)
				}
				delete(open, id)
				nacked, err := s.box.Nack(id, true, "")
				if err != nil {
					m.t.Errorf("nack of %d: %v", id, err)
					continue
				}
				if int(nacked.Attempts) >= limit {
					finish(name)
				}
				m.w.r.Nacked(nacked)
			}
		}
		select {
		case <-life:
			if !m.ended.Load() {
				return unfinished
			}
		default:
		}
	}
}

func (m *model) receiver(i int) {
	r := m.random("receiver", i)
	a, _ := address.Agent("w", "i", fmt.Sprintf("r%d", i))
	p := &acl.Principal{Kind: acl.Agent, Address: a, Workspace: "w"}
	var last ending
	for done := false; !done; {
		done = m.ended.Load()
		o := delivery.Options{Mode: delivery.Client, MaxUnacked: 1 + r.IntN(1<<r.IntN(8)), QueueBytes: 200 + r.IntN(20_000)}
		s := m.connect(p, o, Reads{Exclusive: []string{a.String()}})
		m.mu.Lock()
		m.before[s.n] = last
		m.mu.Unlock()
		last = ending{session: s.n, from: s.sub.inboxes[0].At()}
		last.open = s.consume(r, true, false)
		began := time.Now()
		s.leave()
		if time.Since(began) >= leaveTimeout {
			m.mu.Lock()
			m.hurried[s.n] = true
			m.mu.Unlock()
		}
		if r.IntN(2) == 0 {
			m.pause(time.Duration(r.IntN(50)) * time.Millisecond)
		}
	}
}

// worker 0 stays; the others come and go.
func (m *model) worker(i int) {
	r := m.random("worker", i)
	for done := false; !done; {
		done = m.ended.Load()
		a, _ := address.Task("w", "i", fmt.Sprint(m.names.Add(1)))
		p := &acl.Principal{Kind: acl.Task, Address: a, Workspace: "w"}
		o := delivery.Options{Mode: delivery.Client, MaxUnacked: 1 + r.IntN(5), QueueBytes: 200 + r.IntN(1000)}
		s := m.connect(p, o, Reads{Exclusive: []string{a.String()}, Workers: workersTopic})
		s.consume(r, false, i == 0)
		s.leave()
	}
}
