package router

import (
	"context"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery/tracker"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Tracked sends (FIRST, ALL) end by votes of their receivers, on whatever gateway
// these are (delivery rule R1). The gateway that accepted a send is its origin
// and holds its poll. Each gateway whose tail shows the message says how many may
// vote there, and later how they voted: for a shared address its part of the
// poll, for others the vote of the one who was given the message. The origin puts
// it together and tells the sender once, after the log's confirm.

const (
	// maxPolls bounds the open polls of a gateway, whosever they are; more are
	// refused.
	maxPolls = 1 << 17
	// maxOrphans bounds the polls of a source whose session has ended, kept for
	// repeats under the same message ids; others are forgotten.
	maxOrphans = maxInFlight
	// maxConcluded bounds what is remembered of outcomes, for repeats; the oldest
	// goes.
	maxConcluded = 1 << 14
	// pollSweep is how often it is looked whether gateways have gone.
	pollSweep = 250 * time.Millisecond

	reasonGatewayLost = "gateway_lost"
	reasonLeft        = "subscriber_left"
	reasonOverload    = "gateway_overloaded"
)

// pollKey names a poll at its origin.
type pollKey struct {
	part int
	seq  uint64
}

// poll is one tracked send without an outcome that was told.
type poll struct {
	key      pollKey
	ref      tracker.Ref
	mode     tracker.Mode
	kind     address.Mode
	source   string
	byClient bool
	orphan   bool
	waiters  []pollWaiter // who is told; at most maxWaiting
	stored   bool         // the log has confirmed it
	over     *tracker.Outcome
	shown    bool // the own tail has shown it
	elected  bool
	reports  map[string]report       // by gateway
	votes    map[string]tracker.Vote // of gateways that were elected
}

type pollWaiter struct {
	sender    *Sender
	answer    answer
	duplicate bool
}

// polls are the tracked sends of a gateway and its part in those of others. Its
// lock is a leaf: the locks of partitions, groups and mailboxes lie above it.
type polls struct {
	r    *Router
	self string
	wake chan struct{} // capacity 1

	mu       sync.Mutex
	open     *tracker.Tracker[*poll]
	by       map[pollKey]*poll
	gateways map[string]tracker.Member // that were elected and live
	unsure   map[*poll]struct{}        // shown, while it was not known which gateways live
	told     []told                    // of the runner; at most what is open
	armed    int64                     // when the runner looks next, in ms; 0: when it is woken
	orphans  map[string]int            // by source
	past     map[pollKey]tracker.Outcome
	order    []pollKey // of past, as a ring once it is full
	oldest   int

	booths *tracker.Tracker[booth]
	mail   voteMail
}

// told is an outcome on its way to who asked.
type told struct {
	pollWaiter
	outcome tracker.Outcome
}

func newPolls(r *Router) *polls {
	p := &polls{
		r: r, wake: make(chan struct{}, 1), by: map[pollKey]*poll{}, gateways: map[string]tracker.Member{}, unsure: map[*poll]struct{}{},
		orphans: map[string]int{}, past: map[pollKey]tracker.Outcome{},
	}
	if r.presence != nil {
		p.self = r.presence.Self().ID
	}
	p.open = tracker.New(maxPolls, p.decided)
	p.booths = tracker.New(maxPolls, p.counted)
	p.mail.p = p
	return p
}

// begin opens the poll of a send that has its number.
func (p *polls) begin(key pollKey, s *Sender, d *draft) *wireerr.Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := &poll{
		key: key, mode: d.track.mode, kind: d.track.kind, source: s.source, byClient: d.byClient,
		waiters: []pollWaiter{{sender: s, answer: answer{d.requestID, d.envelope.MessageID, d.envelope.Topic}}},
	}
	ref, ok := p.open.Register(o, o.mode, d.envelope.UntilMS)
	if !ok {
		return wireerr.New(wireerr.RateLimited, "%d tracked sends of this gateway have no outcome yet", maxPolls)
	}
	o.ref = ref
	p.by[key] = o
	s.owe(o)
	p.arm()
	return nil
}

// arm wakes the runner if it would sleep too long. The lock is held.
func (p *polls) arm() {
	at, ok := p.open.Next()
	if other, also := p.booths.Next(); also && (!ok || other < at) {
		at, ok = other, true
	}
	if ok && (p.armed == 0 || at < p.armed) {
		p.rouse()
	}
}

func (p *polls) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// abandon forgets a send that was not published. Who repeated it meanwhile is
// returned, to be told; the sender itself has its answer.
func (p *polls) abandon(key pollKey) []pollWaiter {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := p.by[key]
	if o == nil {
		return nil
	}
	p.open.Cancel(o.ref)
	p.remove(o)
	var others []pollWaiter
	for _, w := range o.waiters {
		w.sender.quit(o)
		w.sender.permits.Return()
		w.sender.owed.done()
		if w.duplicate {
			others = append(others, w)
		}
	}
	return others
}

// confirmed hears what became of publishing a tracked send.
func (p *polls) confirmed(key pollKey, outcome streams.Outcome) {
	if outcome != streams.Stored {
		for _, w := range p.abandon(key) {
			w.sender.settle(w.answer, outcome, true, false)
		}
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if o := p.by[key]; o != nil {
		o.stored = true
		p.conclude(o)
	}
}

// join lets a repeat of a tracked send have its outcome. known is false if this
// gateway does not know of one.
func (p *polls) join(key pollKey, s *Sender, a answer) (known bool, _ *wireerr.Error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if o, over := p.past[key]; over {
		s.owed.add()
		p.tell(pollWaiter{s, a, true}, o)
		return true, nil
	}
	o := p.by[key]
	if o == nil {
		return false, nil
	}
	if len(o.waiters) >= maxWaiting {
		return true, wireerr.New(wireerr.RateLimited, "too many repeats of one message_id wait for its outcome")
	}
	if o.orphan {
		p.adopt(o)
	}
	o.waiters = append(o.waiters, pollWaiter{s, a, true})
	s.owe(o)
	return true, nil
}

// adopt is for an orphan that has somebody again, or goes.
func (p *polls) adopt(o *poll) {
	o.orphan = false
	if p.orphans[o.source]--; p.orphans[o.source] <= 0 {
		delete(p.orphans, o.source)
	}
}

// forget is for a sender that is told nothing more.
func (p *polls) forget(s *Sender) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for o := range s.polls {
		kept := o.waiters[:0]
		for _, w := range o.waiters {
			if w.sender != s {
				kept = append(kept, w)
			}
		}
		clear(o.waiters[len(kept):])
		if o.waiters = kept; len(kept) > 0 {
			continue
		}
		if !o.byClient || p.orphans[o.source] >= maxOrphans {
			p.open.Cancel(o.ref)
			p.remove(o)
			continue
		}
		o.orphan = true
		p.orphans[o.source]++
	}
	s.polls = nil
}

// remove takes a poll off the lists.
func (p *polls) remove(o *poll) {
	delete(p.by, o.key)
	delete(p.unsure, o)
	if o.orphan {
		p.adopt(o)
	}
}

// decided is told by the tracker. The lock is held.
func (p *polls) decided(o *poll, outcome tracker.Outcome) {
	outcome.Acked, outcome.Eligible = 0, 0
	for _, rep := range o.reports {
		outcome.Acked += rep.acked
		outcome.Eligible += rep.eligible
	}
	if o.kind == address.Exclusive {
		outcome.Eligible = 1
	}
	// All gateways are done, and none had anybody; or those that had are gone.
	if o.kind != address.Exclusive && outcome.Eligible == 0 && o.elected && outcome.State != tracker.TimedOut && len(o.reports) >= len(o.votes) {
		outcome.State, outcome.Reason = tracker.Nacked, tracker.NoEligible
	}
	if outcome.State == tracker.Acked {
		outcome.Reason = ""
	}
	outcome.Gone = false
	o.over = &outcome
	delete(p.unsure, o)
	p.conclude(o)
}

// conclude tells an outcome if the send is confirmed as well.
func (p *polls) conclude(o *poll) {
	if !o.stored || o.over == nil {
		return
	}
	p.remove(o)
	if o.byClient {
		p.keep(o.key, *o.over)
	}
	for _, w := range o.waiters {
		w.sender.quit(o)
		p.tell(w, *o.over)
	}
}

func (p *polls) keep(key pollKey, o tracker.Outcome) {
	if len(p.order) < maxConcluded {
		p.order = append(p.order, key)
	} else {
		delete(p.past, p.order[p.oldest])
		p.order[p.oldest] = key
		p.oldest = (p.oldest + 1) % maxConcluded
	}
	p.past[key] = o
}

func (p *polls) tell(w pollWaiter, o tracker.Outcome) {
	p.told = append(p.told, told{w, o})
	p.rouse()
}

// run tells outcomes and looks after time.
func (p *polls) run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	swept := time.Now()
	for ctx.Err() == nil {
		out, wait := p.due(&swept)
		for _, t := range out {
			t.sender.conclude(t)
		}
		if wait >= 0 {
			timer.Reset(wait)
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-p.wake:
		case <-ctx.Done():
		}
	}
}

// due returns what is to be told and how long nothing else is; less than 0: until
// it is woken.
func (p *polls) due(swept *time.Time) ([]told, time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.r.nowMS()
	p.open.Advance(now)
	p.booths.Advance(now)
	if time.Since(*swept) >= pollSweep {
		*swept = time.Now()
		p.sweep()
	}
	out := p.told
	p.told = nil
	wait := time.Duration(-1)
	p.armed = 0
	for _, next := range []func() (int64, bool){p.open.Next, p.booths.Next} {
		if at, ok := next(); ok && (p.armed == 0 || at < p.armed) {
			p.armed = at
		}
	}
	if p.armed != 0 {
		wait = max(0, time.Duration(p.armed-now)*time.Millisecond)
	}
	if len(p.by) > 0 && p.r.presence != nil && (wait < 0 || wait > pollSweep) {
		wait = pollSweep
		p.armed = now + wait.Milliseconds()
	}
	return out, wait
}

// Polled returns how many tracked sends have no outcome yet.
func (r *Router) Polled() int {
	r.polls.mu.Lock()
	defer r.polls.mu.Unlock()
	return len(r.polls.by)
}
