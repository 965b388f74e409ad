package check

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// A mutation breaks one promise in a correct history. It returns false if there
// is nothing in the history to break.
type mutation struct {
	name  string
	rule  Rule
	apply func(rng *rand.Rand, h *History) bool
}

// pick returns the index of a random event that wants takes.
func pick(rng *rand.Rand, h *History, wants func(i int, e Event) bool) (int, bool) {
	var list []int
	for i, e := range h.Events {
		if wants(i, e) {
			list = append(list, i)
		}
	}
	if len(list) == 0 {
		return 0, false
	}
	return list[rng.IntN(len(list))], true
}

func prefix(s string) string { return s[:2] }

// once reports whether the message was attempted once, has a receipt, and came
// in one frame to each receiver.
func once(h *History, m Message) bool {
	attempts, stored, came := 0, 0, map[string]int{}
	for _, e := range h.Events {
		if e.Message() != m {
			continue
		}
		switch e.Kind {
		case Attempt:
			attempts++
		case Stored:
			stored++
		case Delivered:
			who := e.Who
			if prefix(e.To) == "tb" {
				who = "all of them"
			}
			came[who]++
		}
	}
	for _, n := range came {
		if n != 1 {
			return false
		}
	}
	return attempts == 1 && stored == 1 && len(came) > 0
}

func insert(h *History, at int, e Event) {
	e.At = h.Events[at-1].At
	h.Events = slices.Insert(h.Events, at, e)
}

func (h *History) without(drop func(Event) bool) {
	h.Events = slices.DeleteFunc(slices.Clone(h.Events), drop)
}

// deliveredOnce picks the delivery of a message to an address of certain kinds
// that came once.
func deliveredOnce(to ...string) func(*rand.Rand, *History) (int, bool) {
	return func(rng *rand.Rand, h *History) (int, bool) {
		return pick(rng, h, func(_ int, e Event) bool {
			return e.Kind == Delivered && slices.Contains(to, prefix(e.To)) && once(h, e.Message())
		})
	}
}

var mutations = []mutation{
	{"lose an exclusive message", Lost, func(rng *rand.Rand, h *History) bool {
		i, ok := deliveredOnce("ag")(rng, h)
		m := h.Events[i].Message()
		h.without(func(e Event) bool { return ok && e.Message() == m && (e.Kind == Delivered || e.Kind == Processed) })
		return ok
	}},
	{"lose a worker's message", Lost, func(rng *rand.Rand, h *History) bool {
		i, ok := deliveredOnce("tb")(rng, h)
		if !ok {
			return false
		}
		m := h.Events[i].Message()
		h.without(func(e Event) bool { return e.Message() == m && (e.Kind == Delivered || e.Kind == Processed) })
		// Its sender and readers were there and are.
		h.Events = append(h.Events, Event{At: h.Events[len(h.Events)-1].At + 5*time.Second, Kind: Fault, Who: "end"})
		return Judge(*h).Rows["workers"].Excused == 0
	}},
	{"lose a broadcast", Lost, func(rng *rand.Rand, h *History) bool {
		i, ok := pick(rng, h, func(i int, e Event) bool {
			return e.Kind == Delivered && prefix(e.To) == "ga" && once(h, e.Message()) &&
				!slices.ContainsFunc(h.Events[i:], func(l Event) bool { return l.Kind == Left && l.Who == e.Who })
		})
		gone := h.Events[i]
		h.without(func(e Event) bool { return ok && e == gone })
		return ok
	}},
	{"never finish", Lost, func(rng *rand.Rand, h *History) bool {
		i, ok := deliveredOnce("ag")(rng, h)
		m := h.Events[i].Message()
		h.without(func(e Event) bool { return ok && e.Message() == m && e.Kind == Processed })
		return ok
	}},
	{"process twice", Duplicated, func(rng *rand.Rand, h *History) bool {
		i, ok := pick(rng, h, func(_ int, e Event) bool { return e.Kind == Processed && e.Who != "b" })
		if ok {
			insert(h, i+1, h.Events[i])
		}
		return ok
	}},
	{"deliver twice in a session", Duplicated, func(rng *rand.Rand, h *History) bool {
		i, ok := deliveredOnce("ag", "ga")(rng, h)
		if ok {
			e := h.Events[i]
			e.Position = NoPosition
			insert(h, i+1, e)
		}
		return ok
	}},
	{"store twice", Duplicated, func(rng *rand.Rand, h *History) bool {
		i, ok := pick(rng, h, func(_ int, e Event) bool {
			return e.Kind == Delivered && prefix(e.To) == "ag" && e.Position != NoPosition && once(h, e.Message())
		})
		if ok {
			e := h.Events[i]
			e.Position += 1_000_000
			e.Redelivered = true
			insert(h, i+1, e)
		}
		return ok
	}},
	{"give to two workers", Duplicated, func(rng *rand.Rand, h *History) bool {
		i, ok := deliveredOnce("tb")(rng, h)
		if !ok {
			return false
		}
		e := h.Events[i]
		e.Who = map[string]string{"w1": "w2", "w2": "w1"}[e.Who]
		e.Session = "" // the judge asks for no session of it
		insert(h, i+1, e)
		return true
	}},
	{"swap two", Reordered, func(rng *rand.Rand, h *History) bool {
		next := -1
		i, ok := pick(rng, h, func(i int, e Event) bool {
			if e.Kind != Delivered || prefix(e.To) != "ag" || !once(h, e.Message()) {
				return false
			}
			for k := i + 1; k < len(h.Events); k++ {
				l := h.Events[k]
				if l.Kind == Left && l.Who == e.Who {
					return false
				}
				if l.Kind == Delivered && l.Who == e.Who && l.Sender == e.Sender && l.To == e.To {
					return once(h, l.Message())
				}
			}
			return false
		})
		if !ok {
			return false
		}
		a := h.Events[i]
		for k := i + 1; next < 0; k++ {
			if l := h.Events[k]; l.Kind == Delivered && l.Who == a.Who && l.Sender == a.Sender && l.To == a.To {
				next = k
			}
		}
		// The second is sent right after the first, and comes before it.
		b := h.Events[next]
		sent := func(m Message) int {
			return slices.IndexFunc(h.Events, func(e Event) bool { return e.Kind == Attempt && e.Message() == m })
		}
		from, to := sent(b.Message()), sent(a.Message())+1
		if from > i {
			attempt := h.Events[from]
			copy(h.Events[to+1:from+1], h.Events[to:from])
			attempt.At = h.Events[to-1].At
			h.Events[to] = attempt
			i++
		}
		h.Events[i], h.Events[next] = b, a
		h.Events[i].At, h.Events[next].At, h.Events[i].Position, h.Events[next].Position = a.At, b.At, a.Position, b.Position
		return true
	}},
	{"let positions fall", Positions, func(rng *rand.Rand, h *History) bool {
		last := map[string]int64{}
		bad := map[int]int64{}
		for i, e := range h.Events {
			if e.Kind != Delivered || e.Position == NoPosition || e.Redelivered || prefix(e.To) == "tb" {
				continue
			}
			key := e.Session + e.To
			if p, ok := last[key]; ok && once(h, e.Message()) {
				bad[i] = p
			}
			last[key] = e.Position
		}
		i, ok := pick(rng, h, func(i int, _ Event) bool { _, ok := bad[i]; return ok })
		if ok {
			h.Events[i].Position = bad[i]
		}
		return ok
	}},
	{"deliver to a session whose place was taken", Stale, func(rng *rand.Rand, h *History) bool {
		// Of the messages that came in an old session, one comes in it anew.
		session := map[string]string{}
		for _, e := range h.Events {
			if e.Kind == Joined {
				session[e.Who] = e.Session
			}
		}
		i, ok := pick(rng, h, func(_ int, e Event) bool {
			return e.Kind == Delivered && prefix(e.To) == "ag" && e.Session != session[e.Who]
		})
		if ok {
			e := h.Events[i]
			e.Redelivered = true
			e.At = h.Events[len(h.Events)-1].At + time.Minute
			h.Events = append(h.Events, e)
		}
		return ok
	}},
	{"misdeliver", Foreign, func(rng *rand.Rand, h *History) bool {
		i, ok := deliveredOnce("ag", "ga", "tb")(rng, h)
		if !ok {
			return false
		}
		e := h.Events[i]
		e.Who = "other"
		if e.To == "ag::o::a" {
			e.Who = "a"
		}
		insert(h, i+1, e)
		return true
	}},
	{"echo a broadcast", Foreign, func(rng *rand.Rand, h *History) bool {
		i, ok := pick(rng, h, func(_ int, e Event) bool {
			return e.Kind == Delivered && prefix(e.To) == "ga" && e.Sender == "ag::w::a"
		})
		if ok {
			e := h.Events[i]
			e.Who = "a"
			insert(h, i+1, e)
		}
		return ok
	}},
	{"invent a message", Foreign, func(rng *rand.Rand, h *History) bool {
		i, ok := deliveredOnce("ag", "ga", "tb")(rng, h)
		if ok {
			e := h.Events[i]
			e.Seq += 1_000_000
			insert(h, i+1, e)
		}
		return ok
	}},
	{"garble a message", Foreign, func(rng *rand.Rand, h *History) bool {
		insert(h, 1+rng.IntN(len(h.Events)-1), Event{Kind: Garbled, Who: "a", Text: "rubbish"})
		return true
	}},
	{"answer what was not sent", Foreign, func(rng *rand.Rand, h *History) bool {
		insert(h, 1+rng.IntN(len(h.Events)-1), Event{Kind: Stored, Sender: "us::x", To: "ag::w::a", Seq: 1_000_000})
		return true
	}},
	{"drop a flag", Unflagged, func(rng *rand.Rand, h *History) bool {
		i, ok := pick(rng, h, func(i int, e Event) bool {
			if e.Kind != Delivered || prefix(e.To) != "ag" || !e.Redelivered {
				return false
			}
			attempts, known := 0, false
			for k, l := range h.Events {
				if l.Message() == e.Message() && l.Kind == Attempt {
					attempts++
				}
				known = known || k < i && l.Message() == e.Message() && l.Kind == Delivered && l.Gateway == e.Gateway
			}
			return known && attempts == 1
		})
		if ok {
			h.Events[i].Redelivered = false
		}
		return ok
	}},
}

// pickTask changes a random event of a task that wants takes.
func pickTask(kind Kind, wants func(h *History, e Event) bool, change func(h *History, i int)) func(*rand.Rand, *History) bool {
	return func(rng *rand.Rand, h *History) bool {
		i, ok := pick(rng, h, func(_ int, e Event) bool { return e.Kind == kind && (wants == nil || wants(h, e)) })
		if ok {
			change(h, i)
		}
		return ok
	}
}

// knows reports whether the history has such an event of a task.
func (h *History) knows(task string, kind Kind, status string) bool {
	return slices.ContainsFunc(h.Events, func(e Event) bool { return e.Task == task && e.Kind == kind && (status == "" || e.Status == status) })
}

// A task can be told of as completed, after all attempts that it has.
func completed(h *History, e Event) bool { return h.knows(e.Task, Told, "completed") }

var taskMutations = []mutation{
	{"never end", Unfinished, pickTask(Is, completed, func(h *History, i int) {
		task := h.Events[i].Task
		h.Events[i].Status = "running"
		h.without(func(e Event) bool { return e.Task == task && (e.Kind == Ended || e.Kind == Told) })
	})},
	{"forget a task", Unfinished, pickTask(Created, nil, func(h *History, i int) {
		task := h.Events[i].Task
		h.without(func(e Event) bool { return e.Task == task && e.Kind != Created })
	})},
	{"give an attempt to two", TwoHolders, pickTask(Began, nil, func(h *History, i int) {
		e := h.Events[i]
		e.Who = map[string]string{"w1": "w2", "w2": "w1"}[e.Who]
		insert(h, i+1, e)
	})},
	{"complete another's attempt", TwoHolders, pickTask(Ended, nil, func(h *History, i int) {
		h.Events[i].Who = map[string]string{"w1": "w2", "w2": "w1"}[h.Events[i].Who]
	})},
	{"complete an old attempt", TwoHolders, pickTask(Ended, func(_ *History, e Event) bool { return e.Attempt > 1 }, func(h *History, i int) {
		h.Events[i].Attempt--
		for _, e := range h.Events {
			if e.Kind == Began && e.Task == h.Events[i].Task && e.Attempt == h.Events[i].Attempt {
				h.Events[i].Who = e.Who
			}
		}
	})},
	{"complete it twice", Revived, pickTask(Ended, nil, func(h *History, i int) { insert(h, i+1, h.Events[i]) })},
	{"tell of two ends", Revived, pickTask(Told, func(_ *History, e Event) bool { return e.Status == "completed" }, func(h *History, i int) {
		e := h.Events[i]
		e.Status = "failed"
		insert(h, i+1, e)
	})},
	{"bring it back", Revived, pickTask(Is, nil, func(h *History, i int) {
		e := h.Events[i]
		e.Status, e.Most, e.Attempt = "failed", 9, 9
		insert(h, i, e)
	})},
	{"end otherwise than was confirmed", Revived, pickTask(Is, completed, func(h *History, i int) {
		task := h.Events[i].Task
		h.Events[i].Status = "failed"
		h.without(func(e Event) bool { return e.Task == task && e.Kind == Told && e.Status == "completed" })
		for k, e := range h.Events {
			if e.Kind == Ended && e.Task == task {
				e.Kind, e.Status = Told, "failed"
				e.Who = h.Events[slices.IndexFunc(h.Events, func(c Event) bool { return c.Kind == Created && c.Task == task })].Who
				insert(h, k, e)
				break
			}
		}
	})},
	{"try it too often", Attempts, pickTask(Is, nil, func(h *History, i int) { h.Events[i].Attempt = 4 })},
	{"hand a start out twice", Attempts, pickTask(Handed, nil, func(h *History, i int) { insert(h, i+1, h.Events[i]) })},
	{"start twice at once", TwoStarts, pickTask(Is, func(_ *History, e Event) bool { return e.Text != "" }, func(h *History, i int) {
		e := h.Events[i]
		e.Task, e.Since = "another", e.Until-time.Second
		e.Since -= time.Second
		e.Until = e.Since + 500*time.Millisecond
		h.Events[i].Since = e.Since - time.Second
		h.Events[i].Until = e.Since + 3*time.Second
		insert(h, i+1, e)
	})},
	{"do not tell of an end", Untold, pickTask(Told, func(_ *History, e Event) bool {
		return e.Status == "completed" && e.Who == "c"
	}, func(h *History, i int) {
		gone := h.Events[i]
		h.without(func(e Event) bool { return e == gone })
	})},
}

func report(r *Result) string {
	var b strings.Builder
	for _, v := range r.Violations {
		fmt.Fprintln(&b, v)
	}
	return b.String()
}

// A correct history has no report, and one broken promise has one: its own.
func property(t *testing.T, seed uint64, sends int) {
	t.Helper()
	h := correct(seed, sends)
	if r := Judge(h); len(r.Violations) > 0 {
		t.Fatalf("seed %d: a correct history is reported:\n%s", seed, report(r))
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	for _, m := range slices.Concat(mutations, taskMutations) {
		broken := h
		broken.Events = slices.Clone(h.Events)
		if !m.apply(rng, &broken) {
			continue
		}
		r := Judge(broken)
		if len(r.Violations) != 1 || r.Violations[0].Rule != m.rule {
			t.Errorf("seed %d: %s: want one report of %q, got:\n%s", seed, m.name, m.rule, report(r))
		}
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		property(t, seed, 150)
	}
}

// Each mutation must find something to break, else it shows nothing.
func TestMutationsApply(t *testing.T) {
	t.Parallel()
	for _, m := range slices.Concat(mutations, taskMutations) {
		applied := 0
		for seed := range uint64(20) {
			h := correct(seed, 150)
			if m.apply(rand.New(rand.NewPCG(seed, 3)), &h) {
				applied++
			}
		}
		if applied < 5 {
			t.Errorf("%s: applied to %d of 20 histories", m.name, applied)
		}
	}
}

func FuzzJudge(f *testing.F) {
	f.Add(uint64(1), uint16(50))
	f.Fuzz(func(t *testing.T, seed uint64, sends uint16) { property(t, seed, int(sends)%500) })
}

// The judge takes whatever a file holds.
func FuzzHistory(f *testing.F) {
	h := correct(1, 20)
	b, err := json.Marshal(h)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(_ *testing.T, b []byte) {
		var h History
		if json.Unmarshal(b, &h) != nil {
			return
		}
		r := Judge(h)
		_ = r.Table()
		for _, v := range r.Violations {
			Around(h, v)
		}
	})
}
