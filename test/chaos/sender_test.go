package chaos

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/test/chaos/check"
)

// habit is how a sender goes about failures.
type habit int

const (
	// patient sends one message after the other and repeats each under its id
	// until it has a receipt.
	patient habit = iota
	// hasty has many under way. After a failure it waits for all answers, and
	// repeats what failed, in order.
	hasty
	// careless has many under way and repeats nothing.
	careless
)

const (
	sendTimeout = 20 * time.Second
	// givesUp is when a sender stops repeating; ids are remembered for longer.
	givesUp  = 2 * time.Minute
	underWay = 32
)

// sender sends numbered messages to a list of addresses in turn.
type sender struct {
	rec    *recorder
	client *client.Client
	source string
	to     []string
	habit  habit
	pace   time.Duration
	rng    *rand.Rand

	seq     map[string]int
	pending []sent
	failing atomic.Bool // one of pending has failed
}

type sent struct {
	check.Message
	pending *client.Pending
}

// run sends until stop is closed; then it finishes what is under way.
func (s *sender) run(ctx context.Context, stop <-chan struct{}) {
	s.seq = map[string]int{}
	for i := s.rng.IntN(len(s.to)); ; i++ {
		pause := time.NewTimer(s.pace/2 + time.Duration(s.rng.Int64N(int64(s.pace))))
		select {
		case <-stop:
			pause.Stop()
			s.collect(ctx, 0)
			return
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		to := s.to[i%len(s.to)]
		s.seq[to]++
		m := check.Message{Sender: s.source, To: to, Seq: s.seq[to]}
		if s.habit == patient {
			s.insist(ctx, m)
			continue
		}
		s.launch(ctx, m)
		if s.failing.Load() {
			s.collect(ctx, 0)
		} else {
			s.collect(ctx, underWay)
		}
	}
}

func (s *sender) note(kind check.Kind, m check.Message, text string) {
	s.rec.note(check.Event{Kind: kind, Sender: m.Sender, To: m.To, Seq: m.Seq, Text: text})
}

func (s *sender) stored(m check.Message, r client.Receipt) {
	s.rec.note(check.Event{Kind: check.Stored, Sender: m.Sender, To: m.To, Seq: m.Seq, Duplicate: r.Duplicate})
}

func (s *sender) failed(m check.Message, err error) {
	kind := check.Unknown
	if client.NotStored(err) {
		kind = check.Refused
	}
	s.note(kind, m, err.Error())
}

// launch makes the first attempt of a message without waiting for the answer.
func (s *sender) launch(ctx context.Context, m check.Message) {
	s.note(check.Attempt, m, "")
	limited, cancel := context.WithTimeout(ctx, sendTimeout)
	p, err := s.client.SendAsync(limited, m.To, payload(m), client.WithMessageID(messageID(m)))
	if err != nil {
		cancel()
		s.failed(m, err)
		s.failing.Store(true)
		s.pending = append(s.pending, sent{Message: m})
		return
	}
	go func() {
		defer cancel()
		<-p.Done()
		if _, err := p.Wait(ctx); err != nil {
			s.failing.Store(true)
		}
	}()
	s.pending = append(s.pending, sent{m, p})
}

// collect waits for answers, in order, until at most so many are open, and goes
// after those that failed when there are no others.
func (s *sender) collect(ctx context.Context, open int) {
	var again []check.Message
	for len(s.pending) > open || open > 0 && len(s.pending) > 0 && s.answered(s.pending[0]) {
		p := s.pending[0]
		s.pending = s.pending[1:]
		if p.pending != nil {
			r, err := p.pending.Wait(context.Background()) // its own context ends it
			if err == nil {
				s.stored(p.Message, r)
				continue
			}
			s.failed(p.Message, err)
			open = 0 // nothing more is sent before all is known
		}
		again = append(again, p.Message)
	}
	if len(s.pending) == 0 {
		s.failing.Store(false)
	}
	if s.habit == careless {
		return
	}
	for _, m := range again {
		s.insist(ctx, m)
	}
}

func (s *sender) answered(p sent) bool {
	if p.pending == nil {
		return true
	}
	select {
	case <-p.pending.Done():
		return true
	default:
		return false
	}
}

// insist sends a message until it has a receipt.
func (s *sender) insist(ctx context.Context, m check.Message) {
	for deadline := time.Now().Add(givesUp); time.Now().Before(deadline); {
		s.note(check.Attempt, m, "")
		limited, cancel := context.WithTimeout(ctx, sendTimeout)
		r, err := s.client.Send(limited, m.To, payload(m), client.WithMessageID(messageID(m)))
		cancel()
		if err == nil {
			s.stored(m, r)
			return
		}
		s.failed(m, err)
		if !client.SafeToRetry(err) || !wait(ctx, 100*time.Millisecond+time.Duration(s.rng.IntN(200))*time.Millisecond) {
			return
		}
	}
}
