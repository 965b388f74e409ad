package redis

import (
	"context"
	"strings"
	"sync"

	"github.com/aether-gateway/gateway/internal/presence"
)

// control begins the kinds that gateways use among themselves.
const control = "presence."

func (p *Presence) channel(boot string) string {
	if boot == "" {
		return p.base + "all"
	}
	return p.base + "to:" + boot
}

func frame(from, kind string, payload []byte) []byte {
	b := make([]byte, 0, len(from)+len(kind)+len(payload)+16)
	return append(appendField(appendField(b, from), kind), payload...)
}

func parseFrame(message string) (from, kind string, payload []byte, err error) {
	from, rest, err := cutField(message)
	if err == nil {
		kind, rest, err = cutField(rest)
	}
	return from, kind, []byte(rest), err
}

// sender sends notices one batch after the other, which keeps their order. Its
// goroutine lives only while some wait.
type sender struct {
	p *Presence

	mu sync.Mutex
	// queue is bounded by maxOutgoing; more are refused.
	queue   []outgoing
	running bool
	closed  bool
	lost    uint64
	wg      sync.WaitGroup
}

type outgoing struct {
	channel string
	message []byte
}

const (
	maxOutgoing = 4096
	maxPipeline = 256
)

// Send implements [presence.Notices].
func (p *Presence) Send(to, kind string, payload []byte) error {
	if err := presence.CheckNotice(kind, payload); err != nil {
		return err
	}
	if to == p.self.ID {
		p.inbox.Put(presence.Notice{From: to, Kind: kind, Payload: append([]byte(nil), payload...)})
		return nil
	}
	return p.out.put(outgoing{p.channel(to), frame(p.self.ID, kind, payload)})
}

// Listen implements [presence.Notices].
func (p *Presence) Listen(kind string, f func(presence.Notice)) (stop func()) {
	return p.inbox.Listen(kind, f)
}

func (s *sender) put(o outgoing) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return presence.ErrClosed
	}
	if len(s.queue) >= maxOutgoing {
		return presence.ErrOverflow
	}
	s.queue = append(s.queue, o)
	if !s.running {
		s.running = true
		s.wg.Go(s.run)
	}
	return nil
}

func (s *sender) run() {
	for {
		s.mu.Lock()
		batch := s.queue[:min(len(s.queue), maxPipeline)]
		s.queue = s.queue[len(batch):]
		if len(batch) == 0 {
			s.queue, s.running = nil, false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		if err := s.send(batch); err != nil {
			s.mu.Lock()
			s.lost += uint64(len(batch))
			s.mu.Unlock()
		}
	}
}

func (s *sender) send(batch []outgoing) error {
	s.p.mu.RLock()
	down := s.p.down
	s.p.mu.RUnlock()
	if down != nil {
		return down
	}
	ctx, cancel := context.WithTimeout(s.p.ctx, callTimeout)
	defer cancel()
	pipe := s.p.client.Pipeline()
	for _, o := range batch {
		pipe.Publish(ctx, o.channel, o.message)
	}
	_, err := pipe.Exec(ctx)
	return err
}

func (s *sender) close() {
	s.mu.Lock()
	s.closed, s.queue = true, nil
	s.mu.Unlock()
	s.wg.Wait()
}

// onNotice handles a message of another gateway.
func (p *Presence) onNotice(message string) {
	from, kind, payload, err := parseFrame(message)
	if err != nil || from == p.self.ID {
		return
	}
	if name, ok := strings.CutPrefix(kind, control); ok {
		p.onControl(from, name, payload)
		return
	}
	p.inbox.Put(presence.Notice{From: from, Kind: kind, Payload: payload})
}
