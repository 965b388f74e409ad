package presencetest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

// CountersWorld is what the suite of counters runs in: two gateways that share
// them, and the clock by which they fill.
type CountersWorld interface {
	Counters() (a, b presence.Counters)
	// Advance moves the clock; both gateways stay alive.
	Advance(d time.Duration)
}

// RunCounters runs the suite of counters; each test has a world of its own.
func RunCounters(t *testing.T, setup func(t *testing.T) CountersWorld) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, w CountersWorld, a, b presence.Counters)
	}{
		{"FillAndSpend", fillAndSpend},
		{"LostAnswers", lostAnswers},
		{"BeginAnew", beginAnew},
		{"DebtIsBounded", debtIsBounded},
		{"Others", otherGateways},
		{"ManyKeys", manyKeys},
		{"InvalidUsages", invalidUsages},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			a, b := w.Counters()
			c.test(t, w, a, b)
		})
	}
}

// counting is one gateway's view of one key: 100 a second of the first measure,
// 1,000 of the second.
type counting struct {
	t *testing.T
	c presence.Counters
	presence.Usage
}

func count(t *testing.T, c presence.Counters, key string) *counting {
	u := presence.Usage{Key: key, Holders: 1}
	u.Measures[0].Rate, u.Measures[0].Burst = 100, 200
	u.Measures[1].Rate, u.Measures[1].Burst = 1000, 2000
	return &counting{t, c, u}
}

// spend uses something and tells it.
func (c *counting) spend(n float64) {
	c.t.Helper()
	c.Measures[0].Used += n
	c.Measures[1].Used += 10 * n
	c.exchange()
	for i := range c.Measures {
		c.Measures[i].Told = c.Measures[i].Used
	}
}

func (c *counting) exchange() {
	c.t.Helper()
	if err := c.c.Exchange(c.t.Context(), []*presence.Usage{&c.Usage}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *counting) left(what string, want float64) {
	c.t.Helper()
	for i, want := range []float64{want, 10 * want} {
		if got := c.Measures[i].Left; math.Abs(got-want) > 1e-6 {
			c.t.Errorf("%s: %v are left of measure %d, want %v", what, got, i, want)
		}
	}
}

func fillAndSpend(t *testing.T, w CountersWorld, a, b presence.Counters) {
	x, y := count(t, a, "key"), count(t, b, "key")
	x.spend(0)
	x.left("nothing used", 200)
	x.spend(50)
	x.left("a has used 50", 150)
	y.spend(100)
	y.left("b has used 100", 50)
	w.Advance(500 * time.Millisecond)
	x.spend(0)
	x.left("half a second later", 100)
	w.Advance(10 * time.Second)
	x.spend(0)
	x.left("full", 200)
	w.Advance(time.Second)
	x.spend(250) // used while it filled
	x.left("more than was there, in a second", 50)
	other := count(t, b, "other")
	other.spend(1)
	other.left("another key", 199)
	none := count(t, a, "none")
	none.Measures[1] = presence.Measure{Used: 500}
	none.exchange()
	if none.Measures[0].Left != 200 || none.Measures[1].Left != 0 {
		t.Errorf("without a limit: %+v", none.Measures)
	}
}

// What was told and not answered is told again, and counts once.
func lostAnswers(t *testing.T, _ CountersWorld, a, _ presence.Counters) {
	x := count(t, a, "key")
	x.spend(10)
	for i := range x.Measures {
		x.Measures[i].Used += []float64{20, 200}[i]
	}
	x.exchange()
	x.left("30 used", 170)
	x.exchange() // the answer before this one did not come
	x.left("told twice", 170)
	x.spend(5)
	x.left("and more", 165)
}

// A gateway that has forgotten a key begins to count at 0.
func beginAnew(t *testing.T, _ CountersWorld, a, b presence.Counters) {
	count(t, a, "key").spend(100)
	x := count(t, a, "key")
	x.spend(30)
	x.left("counted anew", 70)
	y := count(t, b, "key")
	y.Measures[0].Used, y.Measures[0].Told = 1000, 1000
	y.Measures[1].Used, y.Measures[1].Told = 10_000, 10_000
	y.spend(20) // of a gateway that is not known here, what it has told elsewhere does not count
	y.left("known elsewhere", 50)
}

func debtIsBounded(t *testing.T, w CountersWorld, a, b presence.Counters) {
	count(t, a, "key").spend(10_000)
	y := count(t, b, "key")
	y.spend(0)
	y.left("the debt", -200)
	w.Advance(3 * time.Second)
	y.spend(0)
	y.left("paid", 100)
}

func otherGateways(t *testing.T, w CountersWorld, a, b presence.Counters) {
	x, y := count(t, a, "key"), count(t, b, "key")
	x.Measures[0].Wanted, x.Measures[1].Wanted, x.Holders = 12.5, 70, 3
	x.exchange()
	if len(x.Others) != 0 {
		t.Errorf("alone: %+v", x.Others)
	}
	y.Holders = 5
	y.exchange()
	want := []presence.OtherUsage{{Wanted: [presence.Measures]float64{12.5, 70}, Holders: 3}}
	if !slices.Equal(y.Others, want) {
		t.Errorf("got %+v, want %+v", y.Others, want)
	}
	w.Advance(presence.CounterFresh + 500*time.Millisecond)
	y.exchange()
	want[0].Wanted = [presence.Measures]float64{}
	if !slices.Equal(y.Others, want) {
		t.Errorf("what was wanted long ago: got %+v, want %+v", y.Others, want)
	}
	x.exchange()
	x.Leaving = true
	x.spend(20)
	y.exchange()
	if len(y.Others) != 0 {
		t.Errorf("the other has left: %+v", y.Others)
	}
	y.left("what it used stays used", 180)
	x.Leaving = false
	x.exchange()
	w.Advance(presence.CounterKept + time.Second)
	y.exchange()
	if len(y.Others) != 0 {
		t.Errorf("the other has said nothing for long: %+v", y.Others)
	}
}

func manyKeys(t *testing.T, _ CountersWorld, a, _ presence.Counters) {
	const n = 350
	var list []*presence.Usage
	for i := range n {
		x := count(t, a, fmt.Sprint("key", i))
		x.Measures[0].Used = float64(i)
		list = append(list, &x.Usage)
	}
	if err := a.Exchange(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	for i, u := range list {
		if want := 200 - float64(i); u.Measures[0].Left != want {
			t.Fatalf("key %d: %v are left, want %v", i, u.Measures[0].Left, want)
		}
	}
	if err := a.Exchange(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

func invalidUsages(t *testing.T, _ CountersWorld, a, _ presence.Counters) {
	for what, change := range map[string]func(*presence.Usage){
		"no key":       func(u *presence.Usage) { u.Key = "" },
		"a long key":   func(u *presence.Usage) { u.Key = strings.Repeat("k", presence.MaxCounterKey+1) },
		"negative":     func(u *presence.Usage) { u.Measures[0].Used = -1 },
		"no number":    func(u *presence.Usage) { u.Measures[1].Wanted = math.NaN() },
		"without end":  func(u *presence.Usage) { u.Measures[1].Rate = math.Inf(1) },
		"out of range": func(u *presence.Usage) { u.Measures[1].Burst = 1e18 },
	} {
		x := count(t, a, "key")
		change(&x.Usage)
		if err := a.Exchange(t.Context(), []*presence.Usage{&x.Usage}); !errors.Is(err, presence.ErrInvalid) {
			t.Errorf("%s: got %v", what, err)
		}
	}
	x := count(t, a, "key")
	x.exchange()
	x.left("nothing of it was counted", 200)
}
