package chaos

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// fault is something to break and to mend.
type fault struct {
	kind   string
	target string // a gateway "g0", a node "rabbitmq0", "redis", "postgres", or a link "g0-rabbitmq"
	hold   time.Duration
	delay  time.Duration // of a slow link
}

func (f fault) String() string {
	s := fmt.Sprintf("%s %s", f.kind, f.target)
	if f.hold > 0 {
		s += fmt.Sprintf(" for %v", f.hold)
	}
	if f.delay > 0 {
		s += fmt.Sprintf(", %v each way", f.delay)
	}
	return s
}

// step is the beginning or the end of a fault.
type step struct {
	at    time.Duration
	fault fault
	heal  bool
}

// The kinds of faults.
const (
	kill    = "kill"    // SIGKILL, and a start after a while
	stop    = "stop"    // SIGSTOP, and SIGCONT after a while
	drain   = "drain"   // SIGTERM, and a start after a while
	flush   = "flush"   // of Redis
	cut     = "cut"     // connections are reset
	refuse  = "refuse"  // connections are reset, and new ones too for a while
	slow    = "slow"    // each byte takes longer
	swallow = "swallow" // connections stay open and pass nothing
)

// possible are all pairs of kind and target in a deployment.
func possible(gateways, brokers int) []fault {
	var list []fault
	add := func(target string, kinds ...string) {
		for _, k := range kinds {
			list = append(list, fault{kind: k, target: target})
		}
	}
	for g := range gateways {
		name := fmt.Sprintf("g%d", g)
		add(name, kill, stop, drain)
		links := []string{"redis", "postgres", "clients"}
		if brokers == 1 {
			links = append(links, "rabbitmq")
		}
		for _, link := range links {
			add(name+"-"+link, cut, refuse, slow, swallow)
		}
	}
	for b := range brokers {
		name := fmt.Sprintf("rabbitmq%d", b)
		add(name, kill, stop)
		if brokers > 1 {
			add("all-"+name, cut, refuse, slow, swallow)
		}
	}
	add("redis", kill, stop, flush)
	add("postgres", kill, stop)
	return list
}

// severe are the faults that a short round must not do without: they come
// first in the bag.
func severe(f fault) bool {
	return f.kind == kill || f.kind == flush || f.kind == stop && strings.HasPrefix(f.target, "g") ||
		f.kind == swallow && strings.Contains(f.target, "rabbitmq")
}

// schedule draws the faults of a round from its seed. All are healed before
// length is over; one follows the other, now and then two come together. Every
// kind comes once before one comes again, the severe ones first.
func schedule(seed uint64, length time.Duration, faults []fault) []step {
	rng := rand.New(rand.NewPCG(seed, 7))
	between := func(low, high time.Duration) time.Duration { return low + time.Duration(rng.Int64N(int64(high-low))) }
	var bag []fault
	draw := func() fault {
		if len(bag) == 0 {
			bag = slices.Clone(faults)
			rng.Shuffle(len(bag), func(i, j int) { bag[i], bag[j] = bag[j], bag[i] })
			slices.SortStableFunc(bag, func(a, b fault) int { return cmp.Compare(rank(a), rank(b)) })
		}
		f := bag[0]
		bag = bag[1:]
		switch f.kind {
		case kill, drain:
			f.hold = between(500*time.Millisecond, 4*time.Second)
		case stop, swallow:
			f.hold = between(2*time.Second, 12*time.Second)
		case refuse:
			f.hold = between(time.Second, 5*time.Second)
		case slow:
			f.hold, f.delay = between(2*time.Second, 8*time.Second), between(20*time.Millisecond, 400*time.Millisecond)
		}
		return f
	}
	var steps []step
	add := func(at time.Duration, f fault) {
		steps = append(steps, step{at, f, false}, step{at + f.hold, f, true})
	}
	for at := between(time.Second, 2*time.Second); len(faults) > 0; {
		f := draw()
		over := at + f.hold
		if over > length {
			break
		}
		add(at, f)
		if rng.IntN(5) == 0 {
			second := draw()
			from := at + between(100*time.Millisecond, 2*time.Second)
			if part(second.target) != part(f.target) && from+second.hold <= length {
				add(from, second)
				over = max(over, from+second.hold)
			}
		}
		at = over + between(time.Second, 5*time.Second)
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	return steps
}

func rank(f fault) int {
	if severe(f) {
		return 0
	}
	return 1
}

// part is what a target is a part of; two faults at once are of two parts.
func part(target string) string {
	for _, p := range []string{"rabbitmq", "redis", "postgres"} {
		if strings.Contains(target, p) {
			return p
		}
	}
	return target[:2]
}

// only keeps the faults whose kind and target match.
func only(faults []fault, expression string) ([]fault, error) {
	if expression == "" {
		return faults, nil
	}
	r, err := regexp.Compile(expression)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(faults, func(f fault) bool { return !r.MatchString(f.kind + " " + f.target) }), nil
}

func TestSchedule(t *testing.T) {
	t.Parallel()
	for seed := range uint64(50) {
		for _, brokers := range []int{1, 3} {
			all := possible(2, brokers)
			steps := schedule(seed, 30*time.Minute, all)
			again := schedule(seed, 30*time.Minute, all)
			if !slices.Equal(steps, again) {
				t.Fatalf("seed %d: two schedules", seed)
			}
			open, kinds := map[string]bool{}, map[string]bool{}
			last := time.Duration(0)
			for _, s := range steps {
				name := s.fault.kind + " " + s.fault.target
				kinds[name] = true
				if s.at < last || s.at > 30*time.Minute {
					t.Errorf("seed %d: %v at %v after %v", seed, s.fault, s.at, last)
				}
				last = s.at
				if open[name] != s.heal {
					t.Errorf("seed %d: %v heals %v", seed, s.fault, s.heal)
				}
				open[name] = !s.heal
				together := 0
				for _, is := range open {
					if is {
						together++
					}
				}
				if together > 2 {
					t.Errorf("seed %d: %d faults at once", seed, together)
				}
			}
			for name, is := range open {
				if is {
					t.Errorf("seed %d: %s is not healed", seed, name)
				}
			}
			if len(kinds) != len(all) {
				t.Errorf("seed %d: %d of %d faults come in half an hour", seed, len(kinds), len(all))
			}
		}
	}
	if got := schedule(1, time.Minute, nil); len(got) != 0 {
		t.Errorf("a schedule of no faults: %v", got)
	}
}
