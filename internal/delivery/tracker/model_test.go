package tracker_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/aether-gateway/gateway/internal/delivery/tracker"
)

// subject is what the model drives: the tracker, or one with a fault.
type subject interface {
	Join() tracker.Member
	Leave(m tracker.Member, reason string)
	Register(tag int, mode tracker.Mode, deadline int64) (tracker.Ref, bool)
	Elect(r tracker.Ref, members []tracker.Member, votes []tracker.Vote) []tracker.Vote
	Ack(v tracker.Vote) tracker.Result
	Nack(v tracker.Vote, reason string) tracker.Result
	Gone(v tracker.Vote, reason string) tracker.Result
	Decide(r tracker.Ref, o tracker.Outcome) tracker.Result
	Cancel(r tracker.Ref)
	Advance(now int64)
	Next() (at int64, ok bool)
	Len() int
}

// plain is a send of the reference: everything is looked for, nothing indexed.
type plain struct {
	mode     tracker.Mode
	deadline int64
	ref      tracker.Ref
	elected  bool
	members  []int // who, by number
	votes    []tracker.Vote
	voted    []bool // has voted, or is gone
	acked    uint32
	over     bool
	want     tracker.Outcome
	none     bool // cancelled
}

type model struct {
	rng     *rand.Rand
	s       subject
	now     int64
	sends   []*plain // tag = index
	open    []int
	members []tracker.Member // by seat; 0: has left
	numbers []int            // of who is, or was, in a seat; never used twice
	got     map[int]tracker.Outcome
	limit   int
}

const modelLimit = 200

// check drives a subject, and returns the first contradiction.
func check(make func(decided func(int, tracker.Outcome)) subject, seed uint64, steps int) error {
	m := &model{rng: rand.New(rand.NewPCG(seed, 1)), got: map[int]tracker.Outcome{}, limit: modelLimit, now: 1_000_000}
	var twice error
	m.s = make(func(tag int, o tracker.Outcome) {
		if _, again := m.got[tag]; again {
			twice = fmt.Errorf("send %d has a second outcome", tag)
		}
		m.got[tag] = o
	})
	m.s.Advance(m.now)
	for range 6 {
		m.numbers = append(m.numbers, len(m.members))
		m.members = append(m.members, m.s.Join())
	}
	for i := range steps {
		if err := m.step(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if twice != nil {
			return twice
		}
		if err := m.compare(); err != nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
	}
	return nil
}

// compare wants exactly the outcomes of the reference since the last step.
func (m *model) compare() error {
	kept := m.open[:0]
	for _, tag := range m.open {
		p := m.sends[tag]
		got, ended := m.got[tag]
		switch {
		case p.none && ended:
			return fmt.Errorf("send %d was cancelled and ended with %v", tag, got)
		case !p.none && p.over != ended:
			return fmt.Errorf("send %d: over %v, wanted %v (%v)", tag, ended, p.over, p.want)
		case ended && got != p.want:
			return fmt.Errorf("send %d ended with %v, wanted %v", tag, got, p.want)
		}
		if !p.over && !p.none {
			kept = append(kept, tag)
		}
	}
	m.open = kept
	if n := m.s.Len(); n != len(kept) {
		return fmt.Errorf("%d are open, wanted %d", n, len(kept))
	}
	at, ok := m.s.Next()
	for _, tag := range kept {
		if !ok || m.sends[tag].deadline < at {
			return fmt.Errorf("the next deadline is %d, that of send %d is %d", at, tag, m.sends[tag].deadline)
		}
	}
	return nil
}

func (p *plain) end(o tracker.Outcome) {
	p.over = true
	o.Acked, o.Eligible = p.acked, uint32(len(p.members))
	p.want = o
}

func (p *plain) owed() (n int) {
	for _, voted := range p.voted {
		if !voted {
			n++
		}
	}
	return n
}

func (p *plain) gone(i int, reason string) {
	p.voted[i] = true
	if p.mode == tracker.All || p.owed() == 0 {
		p.end(tracker.Outcome{State: tracker.Nacked, Reason: reason, Gone: true})
	}
}

func (m *model) step() error {
	switch k := m.rng.IntN(100); {
	case k < 25:
		return m.register()
	case k < 75:
		return m.vote()
	case k < 80:
		n := m.rng.IntN(len(m.members))
		if m.members[n] == 0 {
			m.members[n] = m.s.Join()
			m.numbers[n] += len(m.numbers)
			return nil
		}
		for _, tag := range m.open {
			p := m.sends[tag]
			if i := slices.Index(p.members, m.numbers[n]); i >= 0 && !p.voted[i] {
				p.gone(i, "left")
			}
		}
		m.s.Leave(m.members[n], "left")
		m.members[n] = 0
	case k < 84:
		if len(m.open) > 0 {
			p := m.sends[m.open[m.rng.IntN(len(m.open))]]
			if m.rng.IntN(2) == 0 {
				p.none = true
				m.s.Cancel(p.ref)
				return nil
			}
			o := tracker.Outcome{State: tracker.Nacked, Reason: "decided"}
			p.end(o)
			m.s.Decide(p.ref, o)
		}
	default:
		// Now and then to a deadline exactly, or to just before it.
		d := int64(m.rng.IntN(30))
		if len(m.open) > 0 && m.rng.IntN(3) == 0 {
			d = max(0, m.sends[m.open[m.rng.IntN(len(m.open))]].deadline-m.now-int64(m.rng.IntN(2)))
		}
		m.now += d
		for _, tag := range m.open {
			if p := m.sends[tag]; p.deadline <= m.now {
				p.end(tracker.Outcome{State: tracker.TimedOut})
			}
		}
		m.s.Advance(m.now)
	}
	return nil
}

func (m *model) register() error {
	mode := tracker.First
	if m.rng.IntN(2) == 0 {
		mode = tracker.All
	}
	p := &plain{mode: mode, deadline: m.now + 1 + int64(m.rng.IntN(1<<m.rng.IntN(14)))}
	ref, ok := m.s.Register(len(m.sends), mode, p.deadline)
	if want := len(m.open) < m.limit; ok != want {
		return fmt.Errorf("with %d open one more is taken: %v", len(m.open), ok)
	}
	if !ok {
		return nil
	}
	p.ref = ref
	m.open = append(m.open, len(m.sends))
	m.sends = append(m.sends, p)
	if m.rng.IntN(5) > 0 {
		m.elect(p)
	}
	return nil
}

func (m *model) elect(p *plain) {
	var set []tracker.Member
	for n, member := range m.members {
		if member != 0 && m.rng.IntN(3) > 0 {
			p.members = append(p.members, m.numbers[n])
			set = append(set, member)
		}
	}
	p.elected = true
	p.voted = make([]bool, len(p.members))
	if len(p.members) == 0 {
		p.end(tracker.Outcome{State: tracker.Nacked, Reason: tracker.NoEligible})
	}
	p.votes = m.s.Elect(p.ref, set, nil)
}

// vote is by anybody on any of the last sends, also on those that are over.
func (m *model) vote() error {
	if len(m.sends) == 0 {
		return nil
	}
	p := m.sends[max(0, len(m.sends)-1-m.rng.IntN(40))]
	if !p.elected {
		if !p.over && !p.none {
			m.elect(p)
		}
		return nil
	}
	if len(p.votes) == 0 {
		return nil
	}
	i := m.rng.IntN(len(p.votes))
	want := tracker.OK
	if p.over || p.none {
		want = tracker.NotTracked
	}
	counts := want == tracker.OK && !p.voted[i]
	var got tracker.Result
	switch m.rng.IntN(6) {
	case 0:
		if counts {
			p.voted[i] = true
			p.end(tracker.Outcome{State: tracker.Nacked, Reason: "no"})
		}
		got = m.s.Nack(p.votes[i], "no")
	case 1:
		if counts {
			p.gone(i, "lagged")
		}
		got = m.s.Gone(p.votes[i], "lagged")
	default:
		if counts {
			p.voted[i] = true
			p.acked++
			if p.mode == tracker.First || p.owed() == 0 {
				p.end(tracker.Outcome{State: tracker.Acked})
			}
		}
		got = m.s.Ack(p.votes[i])
	}
	if got != want {
		return fmt.Errorf("a vote is %d, wanted %d", got, want)
	}
	return nil
}

func sound(decided func(int, tracker.Outcome)) subject {
	return tracker.New(modelLimit, decided)
}

// Random steps against a reference that looks everything up. With AETHER_TEST_LONG
// a million of them for each seed.
func TestModel(t *testing.T) {
	t.Parallel()
	steps := 4000
	if os.Getenv("AETHER_TEST_LONG") != "" {
		steps = 1_000_000
	}
	for seed := range uint64(5) {
		if err := check(sound, seed, steps); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// The faults that the model is there to find.
type (
	forgetful struct{ subject } // who leaves owes nothing
	hasty     struct{ subject } // times out a millisecond early
	tardy     struct{ subject } // and late
	fickle    struct {          // a member may take back what it acknowledged
		subject
		of map[tracker.Vote]tracker.Ref
	}
	generous struct{ subject } // an empty set is as good as all
	sloppy   struct{ subject } // an old vote counts for the send in the same place
	greedy   struct{ subject } // one member's vote is enough
)

func (f forgetful) Leave(tracker.Member, string) {}
func (f hasty) Advance(now int64)                { f.subject.Advance(now + 1) }
func (f tardy) Advance(now int64)                { f.subject.Advance(now - 1) }

func (f fickle) Elect(r tracker.Ref, members []tracker.Member, votes []tracker.Vote) []tracker.Vote {
	votes = f.subject.Elect(r, members, votes)
	for _, v := range votes {
		f.of[v] = r
	}
	return votes
}

func (f fickle) Nack(v tracker.Vote, reason string) tracker.Result {
	return f.Decide(f.of[v], tracker.Outcome{State: tracker.Nacked, Reason: reason})
}

func (f generous) Elect(r tracker.Ref, members []tracker.Member, votes []tracker.Vote) []tracker.Vote {
	if len(members) == 0 {
		f.Decide(r, tracker.Outcome{State: tracker.Acked})
		return votes
	}
	return f.subject.Elect(r, members, votes)
}

func (f sloppy) Ack(v tracker.Vote) tracker.Result {
	for gen := tracker.Vote(0); gen < 300; gen++ {
		if f.subject.Ack(v&^0xffffffff|gen) == tracker.OK {
			return tracker.OK
		}
	}
	return tracker.NotTracked
}

func (f greedy) Elect(r tracker.Ref, members []tracker.Member, votes []tracker.Vote) []tracker.Vote {
	return f.subject.Elect(r, members[:min(len(members), 1)], votes)
}

func TestModelFindsFaults(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(subject) subject{
		"who leaves owes nothing":     func(s subject) subject { return forgetful{s} },
		"a millisecond early":         func(s subject) subject { return hasty{s} },
		"a millisecond late":          func(s subject) subject { return tardy{s} },
		"an ack is taken back":        func(s subject) subject { return fickle{s, map[tracker.Vote]tracker.Ref{}} },
		"an empty set is acked":       func(s subject) subject { return generous{s} },
		"old votes count":             func(s subject) subject { return sloppy{s} },
		"the first member is the set": func(s subject) subject { return greedy{s} },
	} {
		made := func(decided func(int, tracker.Outcome)) subject { return fault(sound(decided)) }
		if err := checked(made); err == nil {
			t.Errorf("%s: not found", name)
		} else {
			t.Logf("%s: %v", name, err)
		}
	}
}

// checked also takes a panic for a contradiction.
func checked(made func(func(int, tracker.Outcome)) subject) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("it panics: %v", r)
		}
	}()
	return check(made, 1, 2500)
}
