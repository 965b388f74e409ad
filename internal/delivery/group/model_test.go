package group

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

type modelWork struct{ id, size, attempts int }

type modelWorker struct {
	credit int
	held   map[uint64]modelWork
	real   *Worker[int]
}

type modelGroup struct {
	waiting []modelWork
	workers []*modelWorker // who waits longest for a turn is first
	real    *Group[int]
	next    uint64
	done    []int
	dead    []int
	told    []int // dead, as the real one tells
}

func (g *modelGroup) bytes() (n int) {
	for _, w := range g.waiting {
		n += w.size
	}
	return n
}

func (g *modelGroup) hand(w *modelWorker) Handed[int] {
	g.next++
	m := g.waiting[0]
	g.waiting = slices.Clone(g.waiting[1:])
	h := Handed[int]{ID: g.next, Item: m.id, Attempts: m.attempts}
	m.attempts++
	w.held[g.next] = m
	return h
}

func (g *modelGroup) again(m modelWork) {
	if m.attempts >= 3 {
		g.dead = append(g.dead, m.id)
		return
	}
	g.waiting = slices.Insert(g.waiting, 0, m)
}

// run drives a set and the model by the same random steps, and returns what
// differs. Each message is with one worker at most, always somewhere, and done
// or dead in the end. corrupt, if set, is called after each step.
func run(seed uint64, steps int, corrupt func(step int, s *Set[int])) error {
	rng := rand.New(rand.NewPCG(seed, 3))
	capacity, maxBytes := 2+rng.IntN(20), 50+rng.IntN(100)
	var groups []*modelGroup
	s := NewSet(Options[int]{Capacity: capacity, Bytes: maxBytes, Dead: func(g *Group[int], item, _ int) {
		for _, m := range groups {
			if m.real == g {
				m.told = append(m.told, item)
			}
		}
	}})
	for i := range 1 + rng.IntN(3) {
		groups = append(groups, &modelGroup{real: s.Group(fmt.Sprint(i))})
	}
	admitted := 0
	room := func(size int) bool {
		for _, g := range groups {
			if n := len(g.waiting); n > 0 && (n >= capacity || g.bytes()+size > maxBytes) {
				return false
			}
		}
		return true
	}
	for step := range steps {
		g := groups[rng.IntN(len(groups))]
		some := func() *modelWorker { return g.workers[rng.IntN(len(g.workers))] }
		switch k := rng.IntN(100); {
		case k < 35:
			size := rng.IntN(20)
			if ok := s.Admit(admitted, size); ok != room(size) {
				return fmt.Errorf("step %d: admitted %v", step, ok)
			} else if ok {
				for _, g := range groups {
					g.waiting = append(g.waiting, modelWork{id: admitted, size: size})
				}
				admitted++
			}
		case len(g.workers) == 0 || k < 38 && len(g.workers) < 6:
			w := &modelWorker{credit: rng.IntN(5), held: map[uint64]modelWork{}}
			w.real = g.real.Join(w.credit)
			w.real.Data = w
			g.workers = append(g.workers, w)
		case k < 40:
			w := some()
			w.real.Leave()
			g.workers = slices.DeleteFunc(g.workers, func(o *modelWorker) bool { return o == w })
			ids := sorted(w.held)
			for _, id := range slices.Backward(ids) {
				g.again(w.held[id])
			}
		case k < 43:
			w := some()
			w.credit = rng.IntN(6)
			w.real.Credit(w.credit)
		case k < 60:
			var best *modelWorker
			for _, w := range g.workers {
				if len(w.held) < w.credit && (best == nil || len(w.held) < len(best.held)) {
					best = w
				}
			}
			w, h, ok := g.real.Next()
			if want := best != nil && len(g.waiting) > 0; ok != want {
				return fmt.Errorf("step %d: handed out %v, want %v", step, ok, want)
			} else if ok {
				if want := g.hand(best); w != best.real || h != want {
					return fmt.Errorf("step %d: handed out %+v, want %+v, to another %v", step, h, want, w != best.real)
				}
				g.workers = append(slices.DeleteFunc(g.workers, func(o *modelWorker) bool { return o == best }), best)
			}
		case k < 70:
			w := some()
			h, ok := w.real.Take()
			if want := len(w.held) < w.credit && len(g.waiting) > 0; ok != want {
				return fmt.Errorf("step %d: took %v, want %v", step, ok, want)
			} else if ok {
				if want := g.hand(w); h != want {
					return fmt.Errorf("step %d: took %+v, want %+v", step, h, want)
				}
			}
		default:
			w := some()
			id := uint64(rng.IntN(int(g.next) + 2))
			if ids := sorted(w.held); len(ids) > 0 && rng.IntN(8) > 0 {
				id = ids[rng.IntN(len(ids))]
			}
			m, holds := w.held[id]
			delete(w.held, id)
			end, back := w.real.Done, rng.IntN(3) == 0
			if back {
				end = w.real.Return
			}
			if end(id) != holds {
				return fmt.Errorf("step %d: worker holds %d: %v", step, id, !holds)
			}
			if holds && back {
				g.again(m)
			} else if holds {
				g.done = append(g.done, m.id)
			}
		}
		if corrupt != nil {
			corrupt(step, s)
		}
		for _, g := range groups {
			holding := 0
			for _, w := range g.workers {
				holding += len(w.held)
			}
			want := Stats{len(g.waiting), g.bytes(), holding, len(g.workers)}
			if got := g.real.Stats(); got != want {
				return fmt.Errorf("step %d: %+v, want %+v", step, got, want)
			}
			if !slices.Equal(g.told, g.dead) {
				return fmt.Errorf("step %d: told of dead %v, want %v", step, g.told, g.dead)
			}
			if n := len(g.waiting) + holding + len(g.done) + len(g.dead); n != admitted {
				return fmt.Errorf("step %d: %d messages of %d", step, n, admitted)
			}
		}
	}
	return nil
}

func sorted(held map[uint64]modelWork) (ids []uint64) {
	for id := range held {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Who gets a message, how often, and where it is at each moment are what the
// obvious groups say.
func TestModel(t *testing.T) {
	t.Parallel()
	const seeds = 20
	for seed := range uint64(seeds) {
		if err := run(seed, modelSteps()/seeds, nil); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// A defect of any part shows in the model test.
func TestModelFindsDefects(t *testing.T) {
	t.Parallel()
	holding := func(g *Group[int]) *Worker[int] {
		for _, w := range g.workers {
			if len(w.held) > 0 {
				return w
			}
		}
		return nil
	}
	defects := map[string]func(g *Group[int]) bool{
		"a message is lost": func(g *Group[int]) bool {
			return g.waiting.len() > 0 && func() bool { g.waiting.popFront(); return true }()
		},
		"a message is queued twice": func(g *Group[int]) bool {
			return g.waiting.len() > 0 && func() bool { g.waiting.pushBack(*g.waiting.at(0)); return true }()
		},
		"two change places": func(g *Group[int]) bool {
			if g.waiting.len() < 2 {
				return false
			}
			a, b := g.waiting.at(0), g.waiting.at(1)
			*a, *b = *b, *a
			return true
		},
		"bytes are not given back": func(g *Group[int]) bool { g.bytes++; return true },
		"a repeat is not told as one": func(g *Group[int]) bool {
			w := holding(g)
			return w != nil && func() bool { w.held[0].attempts = 0; return true }()
		},
		"held work has another owner": func(g *Group[int]) bool {
			w := holding(g)
			if w == nil || len(g.workers) < 2 {
				return false
			}
			other := g.workers[0]
			if other == w {
				other = g.workers[1]
			}
			other.held = append(other.held, w.held[0])
			w.held = w.held[1:]
			return true
		},
		"somebody has credit too much": func(g *Group[int]) bool {
			return len(g.workers) > 0 && func() bool { g.workers[0].credit++; return true }()
		},
		"the next in turn is forgotten": func(g *Group[int]) bool {
			return len(g.workers) > 1 && func() bool { g.workers[0], g.workers[1] = g.workers[1], g.workers[0]; return true }()
		},
	}
	for name, defect := range defects {
		found := false
		for seed := uint64(0); seed < 10 && !found; seed++ {
			done := false
			err := run(seed, 1000, func(step int, s *Set[int]) {
				if step > 100 && step%7 == 0 {
					s.mu.Lock()
					done = defect(s.groups[0]) || done
					s.mu.Unlock()
				}
			})
			found = done && err != nil
		}
		if !found {
			t.Errorf("not found: %s", name)
		}
	}
}
