package route

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
)

// modelSteps is how many random steps a model test takes.
func modelSteps() int {
	if os.Getenv("AETHER_TEST_LONG") != "" {
		return 1_000_000
	}
	return 60_000
}

// model is the slow and obvious route: a list of messages, and a list of
// principals in the order of their turns.
type model struct {
	opts     Options
	waiting  []modelMessage // by age
	turns    []*modelTurn   // the first is visited
	granted  bool
	evicted  uint64
	oversize uint64
	starved  uint64
}

type modelMessage struct {
	principal string
	cost      int
	id        int
}

type modelTurn struct {
	principal string
	deficit   int
}

func (m *model) of(principal string) (ids []int) { // indexes
	for i, msg := range m.waiting {
		if msg.principal == principal {
			ids = append(ids, i)
		}
	}
	return ids
}

func (m *model) bytes() (n int) {
	for _, msg := range m.waiting {
		n += msg.cost
	}
	return n
}

func (m *model) take(i int) modelMessage {
	msg := m.waiting[i]
	m.waiting = slices.Delete(m.waiting, i, i+1)
	if len(m.of(msg.principal)) == 0 {
		t := slices.IndexFunc(m.turns, func(t *modelTurn) bool { return t.principal == msg.principal })
		if t == 0 {
			m.granted = false
		}
		m.turns = slices.Delete(m.turns, t, t+1)
	}
	return msg
}

func (m *model) push(principal string, cost, id int) (reject Reject, evicted int) {
	s := m.opts.Scope
	if s.Principal != nil && principal != string(s.Principal) && !(s.AndSystem && principal == "") {
		return Foreign, 0
	}
	if cost > m.opts.Budget {
		m.oversize++
		return Oversize, 0
	}
	for m.bytes()+cost > m.opts.Budget {
		victim := 0
		if m.opts.Fattest {
			victim = m.of(m.fattest())[0]
		}
		m.take(victim)
		evicted++
	}
	own := len(m.of(principal)) > 0
	if !own && len(m.turns) >= m.opts.Principals {
		principal = ""
		own = len(m.of("")) > 0
	}
	if ids := m.of(principal); len(ids) >= m.opts.PerPrincipal {
		m.take(ids[0])
		evicted++
		own = len(ids) > 1
	}
	m.evicted += uint64(evicted)
	m.waiting = append(m.waiting, modelMessage{principal, cost, id})
	if !own {
		m.turns = append(m.turns, &modelTurn{principal: principal})
	}
	return Taken, evicted
}

func (m *model) fattest() string {
	sizes := map[string]int{}
	for _, msg := range m.waiting {
		sizes[msg.principal] += msg.cost
	}
	best := m.turns[0].principal
	for _, t := range m.turns[1:] {
		if sizes[t.principal] > sizes[best] {
			best = t.principal
		}
	}
	return best
}

func (m *model) next(limit int) (msg modelMessage, ok bool) {
	fits := false
	for _, t := range m.turns {
		fits = fits || m.waiting[m.of(t.principal)[0]].cost <= limit
	}
	for fits {
		t := m.turns[0]
		head := m.of(t.principal)[0]
		if m.waiting[head].cost <= limit {
			if !m.granted {
				t.deficit += m.opts.Quantum
				m.granted = true
			}
			if m.waiting[head].cost <= t.deficit {
				t.deficit -= m.waiting[head].cost
				return m.take(head), true
			}
			m.starved++
		}
		m.turns = append(m.turns[1:], t)
		m.granted = false
	}
	return msg, false
}

// run drives a route and the model by the same random steps, and returns what
// differs. corrupt, if set, is called after each step.
func run(seed uint64, steps int, corrupt func(step int, r *Route[int])) error {
	rng := rand.New(rand.NewPCG(seed, 5))
	wakes := 0
	o := Options{
		Budget: 200 + rng.IntN(1000), Quantum: 10 + rng.IntN(100), PerPrincipal: 2 + rng.IntN(20), Principals: 2 + rng.IntN(8),
		Fattest: rng.IntN(3) == 0, Wake: func() { wakes++ },
	}
	switch rng.IntN(4) {
	case 0:
		o.Scope = Scope{Principal: []byte("p1"), AndSystem: true}
	case 1:
		o.Scope = Scope{Principal: []byte("p1")}
	}
	m, r := &model{opts: o}, New[int](o, nil)
	matched, delivered, wantWakes := 0, 0, 0
	asleep := true
	for step := range steps {
		switch k := rng.IntN(100); {
		case k < 55:
			principal := fmt.Sprint("p", rng.IntN(12))
			if rng.IntN(8) == 0 {
				principal = ""
			}
			cost := rng.IntN(150)
			if rng.IntN(50) == 0 {
				cost = o.Budget - 5 + rng.IntN(10)
			}
			got := r.Push([]byte(principal), cost, step)
			reject, evicted := m.push(principal, cost, step)
			if got.Reject != reject || got.Evicted != evicted {
				return fmt.Errorf("step %d: pushed %+v, want %d evicted, reject %d", step, got, evicted, reject)
			}
			if reject != Foreign {
				matched++
				if asleep {
					asleep = false
					wantWakes++
				}
			}
		case k < 85:
			item, ok := r.Pop()
			want, wantOK := m.next(o.Budget)
			if ok != wantOK || item != want.id {
				return fmt.Errorf("step %d: popped %d %v, want %d %v", step, item, ok, want.id, wantOK)
			}
			if ok {
				delivered++
			} else {
				asleep = true
			}
		default:
			n, budget := 1+rng.IntN(6), rng.IntN(400)
			items, bytes, more := r.Drain(nil, n, budget)
			var want []int
			left := budget
			for len(want) < n {
				msg, ok := m.next(left)
				if !ok {
					break
				}
				want = append(want, msg.id)
				left -= msg.cost
			}
			if !slices.Equal(items, want) || bytes != budget-left || more != (len(m.waiting) > 0) {
				return fmt.Errorf("step %d: drained %v, %d bytes, %v; want %v, %d bytes", step, items, bytes, more, want, budget-left)
			}
			delivered += len(items)
			asleep = !more
		}
		if corrupt != nil {
			corrupt(step, r)
		}
		s := r.Stats()
		if s.Messages != len(m.waiting) || s.Bytes != m.bytes() || s.Principals != len(m.turns) || s.Starved != m.starved {
			return fmt.Errorf("step %d: holds %+v, want %d messages, %d bytes, %d principals, %d starved", step, s, len(m.waiting), m.bytes(), len(m.turns), m.starved)
		}
		if wakes != wantWakes {
			return fmt.Errorf("step %d: woken %d times, want %d", step, wakes, wantWakes)
		}
	}
	for {
		item, ok := r.Pop()
		want, wantOK := m.next(o.Budget)
		if ok != wantOK || item != want.id {
			return fmt.Errorf("at the end: popped %d %v, want %d %v", item, ok, want.id, wantOK)
		}
		if !ok {
			break
		}
		delivered++
	}
	gap := r.Gap()
	if delivered+int(gap.Count) != matched || gap.Count != m.evicted+m.oversize || gap.Oversize != m.oversize {
		return fmt.Errorf("%d delivered, told of %+v, %d matched", delivered, gap, matched)
	}
	return nil
}

// Whose turn it is, what goes when the route is full, and what is told of it are
// what the obvious route says.
func TestModel(t *testing.T) {
	t.Parallel()
	const seeds = 12
	for seed := range uint64(seeds) {
		if err := run(seed, modelSteps()/seeds, nil); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// A defect of any part shows in the model test.
func TestModelFindsDefects(t *testing.T) {
	t.Parallel()
	defects := map[string]func(r *Route[int]) bool{
		"a bucket saves a byte": func(r *Route[int]) bool {
			return r.current != nil && func() bool { r.current.deficit++; return true }()
		},
		"a turn is passed over": func(r *Route[int]) bool {
			return r.buckets > 1 && func() bool { r.current = r.current.next; return true }()
		},
		"a bucket has its quantum twice": func(r *Route[int]) bool { was := r.granted; r.granted = false; return was },
		"a byte is not given back":       func(r *Route[int]) bool { r.bytes++; return true },
		"a loss is not told": func(r *Route[int]) bool {
			return r.gap.Count > r.gap.Oversize && func() bool { r.gap.Count--; return true }()
		},
		"a wake-up is lost": func(r *Route[int]) bool { was := r.asleep; r.asleep = false; return was },
		"an emptied bucket keeps credit": func(r *Route[int]) bool {
			return r.current != nil && func() bool { r.current.deficit += 5; return true }()
		},
		"two principals are taken for one": func(r *Route[int]) bool {
			if r.buckets < 2 {
				return false
			}
			r.current.name = append([]byte("x"), r.current.name...)
			return true
		},
		"the second oldest goes first": func(r *Route[int]) bool {
			if r.messages < 3 {
				return false
			}
			a := r.oldest
			b := r.nodes[a].newer
			if r.nodes[a].of == r.nodes[b].of {
				return false
			}
			c := r.nodes[b].newer
			r.nodes[b].older, r.nodes[b].newer = none, a
			r.nodes[a].older, r.nodes[a].newer = b, c
			r.nodes[c].older = a
			r.oldest = b
			return true
		},
	}
	for name, defect := range defects {
		found := false
		for seed := range uint64(10) {
			done := false
			err := run(seed, 1500, func(step int, r *Route[int]) {
				if step > 200 && step%7 == 0 {
					r.mu.Lock()
					done = defect(r) || done
					r.mu.Unlock()
				}
			})
			if found = done && err != nil; found {
				break
			}
		}
		if !found {
			t.Errorf("not found: %s", name)
		}
	}
}
