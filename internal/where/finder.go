package where

import (
	"context"
	"encoding/json"
	"time"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/peers"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/router"
)

// MaxMessageID bounds what is looked for, in bytes.
const MaxMessageID = 64

// Status is where one message is.
type Status struct {
	router.Found
	State router.State
	// Deliveries is how often the receiver that has it open was given it; 0 if
	// that is not known, or not any more.
	Deliveries uint32
	// Reason says why, or what is not known, for people.
	Reason string
	// Passed says that an operator has passed over it, who is By, at a time: it was
	// not delivered, and its state is that of one that is expired.
	Passed   bool
	PassedBy string
	PassedAt time.Time
}

// Moves says what operators did to mail.
type Moves interface {
	// PassedOver reports whether one has passed over a message.
	PassedOver(ctx context.Context, address string, position uint64, sent time.Time) (by string, at time.Time, ok bool, err error)
}

// Router is what a gateway knows of messages.
type Router interface {
	FindRecent(id string) []router.Found
	FindStored(ctx context.Context, id string, since time.Time) (list []router.Found, whole bool, err error)
	Progress(topic string, position uint64) (s router.State, deliveries uint32, held bool)
	CommittedUpTo(ctx context.Context, a address.Address) (position uint64, ok bool, err error)
	Refusals(id string) []router.Refusal
}

// Directory says who holds an address.
type Directory interface {
	Lookup(name string) (presence.Entry, bool)
	Self() presence.Instance
}

// Finder finds messages. It is safe for concurrent use.
type Finder struct {
	router Router
	dir    Directory
	peers  *peers.Peers
	moves  Moves
	now    func() time.Time
}

// What gateways ask each other.
const (
	askProgress = "where.progress"
	askRefusals = "where.refusals"
)

// New returns a finder, and makes this gateway answer others' questions. Without
// moves what operators passed over looks acknowledged.
func New(r Router, dir Directory, p *peers.Peers, moves Moves, now func() time.Time) *Finder {
	if now == nil {
		now = time.Now
	}
	f := &Finder{router: r, dir: dir, peers: p, moves: moves, now: now}
	p.Handle(askProgress, f.answerProgress)
	p.Handle(askRefusals, f.answerRefusals)
	return f
}

// Recent looks for a message in what this gateway remembers of the log, and
// for refusals of it on all gateways. wanted chooses whose messages count; nil
// takes all.
func (f *Finder) Recent(ctx context.Context, id string, wanted func(source, topic string) bool) []Status {
	if id == "" || len(id) > MaxMessageID {
		return nil
	}
	return f.describe(ctx, id, f.router.FindRecent(id), wanted)
}

// Stored is Recent that reads the log where memory does not reach: from a time
// on, or, without one, around the time in an id that a gateway drew. whole is
// false if not all of that could be read, or there was no time to begin at.
func (f *Finder) Stored(ctx context.Context, id string, since time.Time) (list []Status, whole bool, err error) {
	if id == "" || len(id) > MaxMessageID {
		return nil, true, nil
	}
	found := f.router.FindRecent(id)
	whole = true
	if len(found) == 0 || !since.IsZero() {
		if found, whole, err = f.router.FindStored(ctx, id, since); err != nil {
			return nil, false, err
		}
	}
	return f.describe(ctx, id, found, nil), whole, nil
}

func (f *Finder) describe(ctx context.Context, id string, found []router.Found, wanted func(source, topic string) bool) []Status {
	var list []Status
	for _, m := range found {
		if wanted == nil || wanted(m.Source, m.Topic) {
			list = append(list, f.status(ctx, m))
		}
	}
	if len(list) > 0 {
		return list // a refusal before it was accepted is over
	}
	for _, r := range f.refusals(ctx, id) {
		if wanted == nil || wanted(r.Source, "") {
			list = append(list, Status{
				Found: router.Found{MessageID: id, Source: r.Source, Topic: r.Topic, TimestampMS: r.At.UnixMilli()},
				State: router.StateRefused, Reason: string(r.Code) + ": " + r.Message,
			})
		}
	}
	return list
}

// status says what became of a message that is stored.
func (f *Finder) status(ctx context.Context, m router.Found) Status {
	s := Status{Found: m, State: router.StateStored}
	a, err := address.Parse(m.Topic)
	if err != nil {
		s.Reason = "who reads this address is not known"
		return s
	}
	over := m.ExpiresAtMS != 0 && f.now().UnixMilli() > m.ExpiresAtMS
	switch a.Prefix().Mode() {
	case address.Exclusive:
		f.exclusive(ctx, a, &s)
		switch {
		case s.State == router.StateAcked && m.Late, s.State == router.StateStored && over:
			s.State, s.Reason = router.StateExpired, "its time was over before it was delivered"
		case s.State == router.StateAcked && f.passed(ctx, &s):
		case s.State == router.StateAcked && over:
			s.Reason = "it is done: acknowledged, or expired, which is not remembered for long"
		}
	case address.Workers:
		f.workers(ctx, &s)
		if s.State == router.StateStored {
			s.Reason = "no worker has it open; which messages workers have acknowledged is not kept"
		}
	default:
		s.Reason = "who got a message to many is not kept"
	}
	return s
}

// passed finds out whether a message that is done was passed over.
func (f *Finder) passed(ctx context.Context, s *Status) bool {
	if f.moves == nil {
		return false
	}
	by, at, ok, err := f.moves.PassedOver(ctx, s.Topic, s.Position, time.UnixMilli(s.TimestampMS))
	switch {
	case err != nil:
		s.Reason = "it is done: acknowledged, or passed over by an operator, which cannot be read at present"
	case ok:
		s.State, s.Passed, s.PassedBy, s.PassedAt = router.StateExpired, true, by, at
		s.Reason = "an operator has passed over it: it was not delivered"
	}
	return ok || err != nil
}

// exclusive asks the gateway that holds the receiver, or the store.
func (f *Finder) exclusive(ctx context.Context, a address.Address, s *Status) {
	state, deliveries, held := f.router.Progress(s.Topic, s.Position)
	if !held {
		if e, known := f.dir.Lookup(s.Topic); known && e.Instance != f.dir.Self().ID {
			state, deliveries, held = f.ask(ctx, e.Instance, s)
			if !held {
				s.Reason = "the gateway of its receiver did not answer; this is what the store has"
			}
		}
	}
	if held {
		s.State, s.Deliveries = state, deliveries
		return
	}
	switch position, ok, err := f.router.CommittedUpTo(ctx, a); {
	case err != nil:
		s.Reason = "it is stored; whether it is done cannot be read at present"
	case ok && position >= s.Position:
		s.State = router.StateAcked
	case s.Reason == "":
		s.Reason = "its receiver is not connected"
	}
}

// workers asks all gateways, whose workers compete.
func (f *Finder) workers(ctx context.Context, s *Status) {
	answers, _ := f.peers.AskAll(ctx, askProgress, question(s))
	for _, a := range answers {
		if p, ok := readProgress(a.Payload, a.Err); ok && p.State == router.StateDelivered {
			s.State, s.Deliveries = p.State, p.Deliveries
		}
	}
}

// progress is what a gateway says of a message.
type progress struct {
	Held       bool         `json:"held"`
	State      router.State `json:"state"`
	Deliveries uint32       `json:"deliveries"`
}

// place is what a gateway is asked about.
type place struct {
	Topic    string `json:"topic"`
	Position uint64 `json:"position"`
}

func question(s *Status) []byte {
	b, _ := json.Marshal(place{s.Topic, s.Position})
	return b
}

func readProgress(payload []byte, err error) (p progress, ok bool) {
	ok = err == nil && json.Unmarshal(payload, &p) == nil && p.Held
	return p, ok
}

func (f *Finder) ask(ctx context.Context, instance string, s *Status) (router.State, uint32, bool) {
	payload, err := f.peers.Ask(ctx, instance, askProgress, question(s))
	p, ok := readProgress(payload, err)
	return p.State, p.Deliveries, ok
}

func (f *Finder) answerProgress(_ context.Context, b []byte) []byte {
	var at place
	var p progress
	if json.Unmarshal(b, &at) == nil {
		p.State, p.Deliveries, p.Held = f.router.Progress(at.Topic, at.Position)
	}
	answer, _ := json.Marshal(p)
	return answer
}

// refusals asks all gateways.
func (f *Finder) refusals(ctx context.Context, id string) (all []router.Refusal) {
	answers, _ := f.peers.AskAll(ctx, askRefusals, []byte(id))
	for _, a := range answers {
		var list []router.Refusal
		if a.Err == nil && json.Unmarshal(a.Payload, &list) == nil {
			all = append(all, list...)
		}
	}
	return all
}

// maxTold bounds the refusals of one id that a gateway tells, the latest ones.
const maxTold = 20

func (f *Finder) answerRefusals(_ context.Context, b []byte) []byte {
	list := f.router.Refusals(string(b))
	answer, err := json.Marshal(list[max(0, len(list)-maxTold):])
	if err != nil {
		return nil
	}
	return answer
}
