package tracker_test

import (
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/delivery/tracker"
)

// The timeouts of a wheel are exact, from the first millisecond to an hour and
// across every boundary of its levels.
func TestDeadlinesAreExact(t *testing.T) {
	t.Parallel()
	for _, start := range []int64{0, 1, 63, 64, 4095, 1<<18 - 1, 1<<24 - 5, 1_790_000_000_123} {
		for _, d := range []int64{1, 2, 63, 64, 65, 1000, 4096, 30_000, 1 << 18, 3_600_000} {
			ended := 0
			tr := tracker.New(2, func(int, tracker.Outcome) { ended++ })
			tr.Advance(start)
			tr.Register(1, tracker.First, start+d)
			tr.Advance(start + d - 1)
			if ended != 0 {
				t.Fatalf("%d after %d ended early", d, start)
			}
			if at, ok := tr.Next(); !ok || at > start+d {
				t.Fatalf("the next deadline is %d, not %d", at, start+d)
			}
			tr.Advance(start + d)
			if ended != 1 || tr.Len() != 0 {
				t.Fatalf("%d after %d did not end", d, start)
			}
		}
	}
}

func TestPermits(t *testing.T) {
	t.Parallel()
	p := tracker.NewPermits(1)
	if !p.Take() || p.Take() || p.Available() != 0 {
		t.Fatal("one permit is not one")
	}
	if p.Return(); p.Available() != 1 || !p.Take() {
		t.Fatal("a permit does not come back")
	}
}

// Registering and deciding in mode FIRST allocates nothing.
func TestFirstAllocatesNothing(t *testing.T) {
	tr := tracker.New(1<<16, func(int, tracker.Outcome) {})
	members := []tracker.Member{tr.Join(), tr.Join()}
	votes := make([]tracker.Vote, 0, 2)
	now := int64(1_790_000_000_000)
	tr.Advance(now)
	step := func() {
		ref, _ := tr.Register(1, tracker.First, now+30_000)
		votes = tr.Elect(ref, members, votes[:0])
		tr.Ack(votes[1])
		open, _ := tr.Register(2, tracker.First, now+30_000)
		tr.Decide(open, tracker.Outcome{State: tracker.Acked})
		now++
		tr.Advance(now)
	}
	for range 100 {
		step()
	}
	if n := testing.AllocsPerRun(1000, step); n != 0 {
		t.Fatalf("%v allocations", n)
	}
}

const benchPending = 100_000

// pending is n open sends, of which one member owes a hundredth, and the same
// without an index: each send has its set of members that owe a vote.
func pending(n int) (tr *tracker.Tracker[int], debtor tracker.Member, scan func() int) {
	tr = tracker.New(n, func(int, tracker.Outcome) {})
	debtor = tr.Join()
	others := []tracker.Member{tr.Join(), tr.Join()}
	plain := make(map[int]map[tracker.Member]struct{}, n)
	for i := range n {
		set := others
		if i%100 == 0 {
			set = []tracker.Member{debtor, others[0]}
		}
		ref, _ := tr.Register(i, tracker.All, int64(1_000_000+i))
		tr.Elect(ref, set, nil)
		plain[i] = map[tracker.Member]struct{}{set[0]: {}, set[1]: {}}
	}
	return tr, debtor, func() (n int) {
		for i, owing := range plain {
			if _, owes := owing[debtor]; owes {
				delete(plain, i)
				n++
			}
		}
		return n
	}
}

// One that leaves costs what it owes, not what is open: at most a twentieth of a
// look at all 100,000.
func TestLeaveIsIndexed(t *testing.T) {
	best, scanned := time.Hour, time.Hour
	all, rounds := benchPending, 3
	if raced {
		all, rounds = benchPending/10, 1
	}
	for range rounds {
		tr, debtor, scan := pending(all)
		began := time.Now()
		if n := scan(); n != all/100 {
			t.Fatalf("the scan finds %d", n)
		}
		scanned = min(scanned, time.Since(began))
		began = time.Now()
		tr.Leave(debtor, "left")
		best = min(best, time.Since(began))
		if tr.Len() != all-all/100 {
			t.Fatalf("%d are left", tr.Len())
		}
	}
	t.Logf("leaving %v, looking at all %v: 1/%.0f", best, scanned, float64(scanned)/float64(best))
	if best*20 > scanned && !raced {
		t.Errorf("leaving took %v, looking at all %v", best, scanned)
	}
}

func BenchmarkFirst(b *testing.B) {
	tr := tracker.New(1<<16, func(int, tracker.Outcome) {})
	members := []tracker.Member{tr.Join()}
	votes := make([]tracker.Vote, 0, 1)
	b.ReportAllocs()
	for b.Loop() {
		ref, _ := tr.Register(1, tracker.First, 30_000)
		votes = tr.Elect(ref, members, votes[:0])
		tr.Ack(votes[0])
	}
}
