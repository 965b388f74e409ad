package check

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// The world of synthetic histories: two gateways, two senders, readers of every
// mode.
var receivers = []Receiver{
	{Name: "a", Exclusive: "ag::w::a", Shared: []string{"ga::w"}, Own: "ag::w::a", Remembers: true},
	{Name: "b", Exclusive: "ag::w::b", Shared: []string{"ga::w"}, Own: "ag::w::b", Class: "auto"},
	{Name: "w1", Workers: "tb::w", Remembers: true},
	{Name: "w2", Workers: "tb::w", Remembers: true},
	{Name: "other", Exclusive: "ag::o::a", Shared: []string{"ga::o"}, Remembers: true},
	{Name: "c", Shared: []string{"pg::w"}}, // creates tasks, and stays
	{Name: "d", Shared: []string{"pg::w"}}, // creates tasks, and is not always told
}

// synthetic makes a correct history: what a gateway that keeps its word might do
// to clients in bad times.
type synthetic struct {
	rng      *rand.Rand
	h        History
	now      time.Duration
	sessions map[string]string
	gateway  map[string]string // of a session
	count    int
	position map[string]int64
	seq      map[pair]int
	unacked  map[string][]Message // of an exclusive reader: delivered in order, not acknowledged
	had      map[string][]string  // message+who → gateways that delivered it
	tasks    int
	is       []Event // how tasks stand in the end
}

func newSynthetic(seed uint64) *synthetic {
	s := &synthetic{
		rng:      rand.New(rand.NewPCG(seed, 1)),
		h:        History{Receivers: receivers, Race: 50 * time.Millisecond, Memory: 30 * time.Second, Fence: 8 * time.Second, Reach: 30 * time.Second},
		sessions: map[string]string{}, gateway: map[string]string{}, position: map[string]int64{}, seq: map[pair]int{},
		unacked: map[string][]Message{}, had: map[string][]string{},
	}
	for _, g := range []string{"g0/1", "g1/1"} {
		s.note(Event{Kind: Up, Gateway: g})
	}
	for _, r := range receivers {
		s.join(r.Name)
	}
	s.now += 5 * time.Second
	return s
}

func (s *synthetic) note(e Event) {
	s.now += time.Duration(s.rng.IntN(5_000_000))
	e.At = s.now
	s.h.Events = append(s.h.Events, e)
}

func (s *synthetic) join(who string) {
	s.count++
	id := fmt.Sprintf("s%d", s.count)
	s.sessions[who], s.gateway[id] = id, fmt.Sprintf("g%d/1", s.rng.IntN(2))
	s.note(Event{Kind: Joined, Who: who, Session: id, Gateway: s.gateway[id], Sender: "ag::w::" + who})
}

// rejoin breaks a reader's session. What it had not acknowledged comes again.
func (s *synthetic) rejoin(who string) {
	s.note(Event{Kind: Left, Who: who, Session: s.sessions[who]})
	s.join(who)
	again := s.unacked[who]
	s.unacked[who] = nil
	for _, m := range again {
		s.deliver(who, m, -1)
	}
}

// deliver delivers a message and, mostly, processes it. A repeat is flagged if
// the process knows of the earlier delivery, and sometimes otherwise.
func (s *synthetic) deliver(who string, m Message, position int64) {
	session := s.sessions[who]
	key := who + m.String()
	before := s.had[key]
	e := Event{
		Kind: Delivered, Who: who, Session: session, Gateway: s.gateway[session],
		Sender: m.Sender, To: m.To, Seq: m.Seq, Position: position,
	}
	e.Redelivered = slices.Contains(before, e.Gateway) || len(before) > 0 && s.rng.IntN(2) == 0
	s.had[key] = append(before, e.Gateway)
	s.note(e)
	// AUTO readers work on what comes again a second time.
	if len(before) == 0 || who == "b" {
		s.note(Event{Kind: Processed, Who: who, Sender: m.Sender, To: m.To, Seq: m.Seq})
	}
	if m.To[:2] == "ag" && s.rng.IntN(4) == 0 {
		s.unacked[who] = append(s.unacked[who], m)
	}
}

// send makes a send with all that follows from it.
func (s *synthetic) send() {
	p := pair{[]string{"us::x", "ag::w::a"}[s.rng.IntN(2)], []string{"ag::w::a", "ag::w::b", "tb::w", "ga::w", "ag::o::a"}[s.rng.IntN(5)]}
	s.seq[p]++
	m := Message{p.sender, p.to, s.seq[p]}
	mark := func(kind Kind) { s.note(Event{Kind: kind, Sender: m.Sender, To: m.To, Seq: m.Seq}) }
	mark(Attempt)
	switch s.rng.IntN(12) {
	case 0:
		mark(Refused)
		return
	case 1:
		mark(Unknown)
		if s.rng.IntN(2) == 0 {
			return
		}
	case 2:
		mark(Unknown)
		mark(Attempt)
		s.note(Event{Kind: Stored, Sender: m.Sender, To: m.To, Seq: m.Seq, Duplicate: true})
	case 3: // delivered before it is stored
		defer mark(Stored)
	default:
		mark(Stored)
	}
	s.position[p.to]++
	position := s.position[p.to]
	switch p.to {
	case "tb::w":
		first := s.rng.IntN(2)
		who := []string{"w1", "w2"}
		if s.rng.IntN(8) == 0 { // the first worker dies with it
			e := Event{
				Kind: Delivered, Who: who[first], Session: s.sessions[who[first]], Gateway: s.gateway[s.sessions[who[first]]],
				Sender: m.Sender, To: m.To, Seq: m.Seq, Position: position,
			}
			s.note(e)
			s.rejoin(who[first])
			e.Who, e.Session, e.Redelivered = who[1-first], s.sessions[who[1-first]], true
			e.Gateway = s.gateway[e.Session]
			s.note(e)
			s.note(Event{Kind: Processed, Who: e.Who, Sender: m.Sender, To: m.To, Seq: m.Seq})
			return
		}
		s.deliver(who[first], m, position)
	case "ga::w":
		for _, who := range []string{"a", "b"} {
			if m.Sender != "ag::w::"+who {
				s.deliver(who, m, NoPosition)
			}
		}
	case "ag::o::a":
		s.deliver("other", m, position)
	default:
		s.deliver(p.to[len("ag::w::"):], m, position)
	}
}

// task makes a task with all that comes of it. Its creator is told, unless it
// was not there.
func (s *synthetic) task() {
	s.tasks++
	e := Event{Task: fmt.Sprintf("t%d", s.tasks), Most: 3, Attempt: 1}
	note := func(kind Kind, who, status string) {
		x := e
		x.Kind, x.Who, x.Status, x.Session = kind, who, status, s.sessions[who]
		s.note(x)
	}
	is := func(status string) {
		x := e
		x.Kind, x.Status, x.Until = Is, status, s.now.Truncate(time.Second)
		s.is = append(s.is, x)
	}
	e.Since = s.now.Truncate(time.Second)
	creator := []string{"c", "d"}[s.rng.IntN(2)]
	note(Created, creator, "")
	for ; e.Attempt < e.Most && s.rng.IntN(4) == 0; e.Attempt++ { // a worker dies
		note(Began, []string{"w1", "w2"}[s.rng.IntN(2)], "")
	}
	if s.rng.IntN(5) == 0 {
		note(Told, creator, "cancelled")
		is("cancelled")
		return
	}
	who := []string{"w1", "w2"}[s.rng.IntN(2)]
	note(Began, who, "")
	note(Told, creator, "running")
	note(Ended, who, "")
	is("completed")
	if creator == "d" && s.rng.IntN(3) == 0 {
		s.rejoin("d")
		return
	}
	note(Told, creator, "completed")
}

// start makes a start of somebody, one after the other.
func (s *synthetic) start() {
	s.tasks++
	e := Event{Kind: Is, Task: fmt.Sprintf("t%d", s.tasks), Most: 3, Attempt: 1 + s.rng.IntN(3), Text: "ag::w::lazy", Since: s.now.Truncate(time.Second), Status: "completed"}
	for range e.Attempt {
		s.note(Event{Kind: Handed, Who: "o", Task: e.Task, Text: e.Text})
	}
	e.Until = s.now.Truncate(time.Second)
	s.is = append(s.is, e)
}

// correct makes a whole history.
func correct(seed uint64, sends int) History {
	s := newSynthetic(seed)
	for range sends {
		switch s.rng.IntN(20) {
		case 0:
			s.rejoin([]string{"a", "b", "other"}[s.rng.IntN(3)])
		case 1:
			s.note(Event{Kind: Fault, Who: "link cut", Text: "g0"})
		case 2, 3:
			s.task()
		case 4:
			s.start()
		default:
			s.send()
		}
	}
	for _, e := range s.is {
		s.note(e)
	}
	return s.h
}
