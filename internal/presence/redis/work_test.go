package redis

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/claims"
	"github.com/aether-gateway/gateway/internal/presence"
)

const jobs = "tb::w::i"

// rival is a gateway's place in the group of an address.
type rival struct {
	t      *testing.T
	m      *member
	serial uint64
	in     string
}

func rivals(t *testing.T, n int) (*world, []*rival) {
	t.Helper()
	w, members := settled(t, n)
	list := make([]*rival, n)
	for i, m := range members {
		list[i] = &rival{t: t, m: m}
	}
	return w, list
}

// try makes a round that may fail.
func (r *rival) try(round claims.Round) (claims.Answer, error) {
	r.serial++
	round.Topic, round.Serial, round.Incarnation = jobs, r.serial, r.in
	if round.Enter != claims.Resume {
		round.Left, round.Back = claims.None, claims.None
	}
	err := r.m.p.Do(r.t.Context(), []*claims.Round{&round})
	if err == nil && round.Answer.Status == claims.OK {
		r.in = round.Answer.Incarnation
	}
	return round.Answer, err
}

func (r *rival) do(round claims.Round) claims.Answer {
	r.t.Helper()
	a, err := r.try(round)
	if err != nil || a.Status != claims.OK {
		r.t.Fatalf("%+v: got %+v, %v", round, a, err)
	}
	return a
}

// begin enters with a first worker.
func (r *rival) begin(tail int64) claims.Answer {
	r.t.Helper()
	return r.do(claims.Round{Enter: claims.Begin, Listening: true, Tail: tail})
}

func (r *rival) wants(max int, candidates ...uint64) claims.Answer {
	r.t.Helper()
	return r.do(claims.Round{Listening: true, Max: max, Candidates: candidates})
}

func (r *rival) leave(tail int64) { r.do(claims.Round{Tail: tail}) }

func granted(t *testing.T, a claims.Answer, floor int64, want ...uint64) {
	t.Helper()
	if !slices.Equal(a.Granted, want) || a.Floor != floor {
		t.Fatalf("granted %v, floor %d; want %v, %d", a.Granted, a.Floor, want, floor)
	}
}

func taken(t *testing.T, a claims.Answer, want ...claims.Claim) {
	t.Helper()
	if !slices.Equal(a.Taken, want) {
		t.Fatalf("took %v, want %v", a.Taken, want)
	}
}

// Each message is granted once, in the order of the log, whoever asks.
func TestT1Claims(t *testing.T) {
	t.Parallel()
	_, list := rivals(t, 2)
	a, b := list[0], list[1]
	if got, err := b.try(claims.Round{Listening: true}); err != nil || got.Status != claims.Anew {
		t.Fatalf("a round in a group that was not entered: %+v, %v", got, err)
	}
	granted(t, a.begin(100), 100)
	granted(t, a.wants(2, 99, 101, 105, 109), 105, 101, 105)
	granted(t, b.begin(200), 105) // a's backlog is everybody's
	granted(t, b.wants(5, 101, 105, 109, 3000), 3000, 109, 3000)
	granted(t, a.wants(5, 109, 3000), 3000)
	got := a.do(claims.Round{Listening: true, Copy: true})
	if got.Others != 1 || got.Free != 0 || !got.Complete || len(got.Table) != 4 || len(got.Peers) != 1 {
		t.Fatalf("got %+v", got)
	}
	// Others cannot finish it, and a late round has no effect.
	b.do(claims.Round{Listening: true, Done: []uint64{101, 109}})
	a.serial -= 2
	if got, err := a.try(claims.Round{Listening: true, Done: []uint64{105}, Max: 1, Candidates: []uint64{4000}}); err != nil || got.Status != claims.Late {
		t.Fatalf("a late round: %+v, %v", got, err)
	}
	a.serial += 2
	a.do(claims.Round{Listening: true, Done: []uint64{101}})
	got = a.do(claims.Round{Listening: true, Copy: true})
	if len(got.Table) != 2 {
		t.Fatalf("open are %v", got.Table)
	}
}

// What comes while no gateway listens is passed over; what came before is not.
func TestT1NobodyListens(t *testing.T) {
	t.Parallel()
	_, list := rivals(t, 2)
	a, b := list[0], list[1]
	a.begin(100)
	granted(t, a.wants(1, 101, 150), 101, 101)
	b.begin(110)
	a.leave(200) // b listens
	b.leave(300)
	got := b.do(claims.Round{Enter: claims.Begin, Listening: true, Tail: 400})
	granted(t, got, 101)
	granted(t, b.wants(9, 150, 250, 350, 400, 401), 401, 150, 250, 401)
}

// Delivery rule T3: what is given back is anybody's, with its attempts.
func TestT3GivenBack(t *testing.T) {
	t.Parallel()
	_, list := rivals(t, 2)
	a, b := list[0], list[1]
	a.begin(0)
	b.begin(0)
	granted(t, a.wants(3, 1, 2, 3), 3, 1, 2, 3)
	b.do(claims.Round{Listening: true, Free: []claims.Claim{{Position: 1, Attempts: 9}}}) // not its own
	got := a.do(claims.Round{Listening: true, Free: []claims.Claim{{Position: 3, Attempts: 1}, {Position: 2, Attempts: 2}}})
	if got.Free != 2 {
		t.Fatalf("%d wait", got.Free)
	}
	got = b.do(claims.Round{Listening: true, Max: 2, MaxFree: 1, Candidates: []uint64{1, 2, 3, 4, 5}})
	taken(t, got, claims.Claim{Position: 2, Attempts: 2})
	granted(t, got, 4, 4)
	taken(t, a.do(claims.Round{Listening: true, Max: 5, MaxFree: 5}), claims.Claim{Position: 3, Attempts: 1})
	taken(t, b.do(claims.Round{Listening: true, Max: 5, MaxFree: 5}))
}

// Delivery rule T2: the open claims of a dead gateway are free, its later
// rounds change nothing of them.
func TestT2DeadOwner(t *testing.T) {
	t.Parallel()
	w, list := rivals(t, 2)
	a, b := list[0], list[1]
	a.begin(0)
	b.begin(0)
	granted(t, a.wants(3, 1, 2, 3), 3, 1, 2, 3)
	a.do(claims.Round{Listening: true, Done: []uint64{2}})
	a.m.frozen.Store(true)
	w.Advance(presence.TTL + time.Second)
	if _, err := a.try(claims.Round{Listening: true, Max: 1, Candidates: []uint64{4}}); !errors.Is(err, claims.ErrUnavailable) {
		t.Fatalf("a dead gateway claims: %v", err)
	}
	got := b.do(claims.Round{Listening: true, Max: 9, MaxFree: 9})
	taken(t, got, claims.Claim{Position: 1, Attempts: 1}, claims.Claim{Position: 3, Attempts: 1})
	if got.Others != 0 {
		t.Errorf("%d others", got.Others)
	}
	a.m.frozen.Store(false)
	w.Advance(time.Second)
	got = a.do(claims.Round{Listening: true, Copy: true, Done: []uint64{1}, Free: []claims.Claim{{Position: 3}}, Max: 9, MaxFree: 9})
	taken(t, got)
	if len(got.Table) != 2 || got.Table[0].Owner != b.m.p.self.ID || got.Table[1].Owner != b.m.p.self.ID {
		t.Errorf("open are %+v", got.Table)
	}
}

// Delivery rule T3: an emptied Redis is filled from what the gateways know,
// and claims nothing meanwhile.
func TestT3StateIsPutTogether(t *testing.T) {
	for name, lose := range lostStates() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, list := rivals(t, 3)
			a, b, c := list[0], list[1], list[2]
			a.begin(0)
			b.begin(0)
			granted(t, a.wants(2, 1, 2), 2, 1, 2)
			granted(t, b.wants(2, 3, 4), 4, 3, 4)
			lose(w)
			w.Advance(time.Second)
			got, err := a.try(claims.Round{Listening: true})
			if err != nil || got.Status != claims.Anew {
				t.Fatalf("got %+v, %v", got, err)
			}
			// A newcomer first: it must not pass over what the others know to
			// be undecided.
			c.in = ""
			if got := c.begin(50); got.Wait == 0 {
				t.Fatal("claims at once")
			}
			resume := func(r *rival, cursor int64, own ...claims.Claim) claims.Answer {
				r.in = ""
				return r.do(claims.Round{Enter: claims.Resume, Listening: true, Cursor: cursor, Left: claims.None, Back: claims.None, Own: own})
			}
			granted(t, resume(a, 2, claims.Claim{Position: 1}, claims.Claim{Position: 2, Attempts: 1}), 2)
			got = resume(b, 4, claims.Claim{Position: 3}) // 4 is done
			granted(t, got, 4)
			got = c.do(claims.Round{Listening: true, Max: 9, MaxFree: 9, Candidates: []uint64{5}})
			granted(t, got, 4)
			w.Advance(presence.TTL)
			// Orphans: of the living, unknown; of nobody; above the floor.
			ids := a.m.p.self.ID + "," + "dead"
			got = c.do(claims.Round{Listening: true, Max: 9, MaxFree: 9, Copy: true, Orphans: []claims.Owned{
				{Claim: claims.Claim{Position: 1, Attempts: 1}, Owner: ""},
				{Claim: claims.Claim{Position: 4, Attempts: 0}, Owner: b.m.p.self.ID},
				{Claim: claims.Claim{Position: 0, Attempts: 1}, Owner: ids},
				{Claim: claims.Claim{Position: 60, Attempts: 1}, Owner: ""},
			}})
			taken(t, got, claims.Claim{Position: 0, Attempts: 2})
			if len(got.Table) != 4 {
				t.Errorf("open are %v", got.Table)
			}
			granted(t, b.wants(9, 5, 6, 60), 60, 5, 6, 60)
		})
	}
}

// All workers had left before the loss; the first newcomer does not know it.
func TestT3LeftBeforeTheLoss(t *testing.T) {
	t.Parallel()
	w, list := rivals(t, 2)
	a, b := list[0], list[1]
	a.begin(0)
	granted(t, a.wants(1, 1, 2), 1, 1)
	a.leave(10)
	lostStates()["flush"](w)
	w.Advance(time.Second)
	b.begin(20)
	a.in = ""
	a.do(claims.Round{Enter: claims.Resume, Cursor: 1, Left: 10, Back: claims.None, Own: []claims.Claim{{Position: 1}}, Free: []claims.Claim{{Position: 1, Attempts: 1}}})
	w.Advance(presence.TTL)
	got := b.do(claims.Round{Enter: claims.Begin, Listening: true, Tail: 20, Max: 9, MaxFree: 9, Candidates: []uint64{2, 11, 20, 21}})
	taken(t, got, claims.Claim{Position: 1, Attempts: 1})
	granted(t, got, 21, 2, 21)
}

// A log that was made anew ends below the floor.
func TestT1LogMadeAnew(t *testing.T) {
	t.Parallel()
	_, list := rivals(t, 1)
	a := list[0]
	a.begin(1 << 40)
	granted(t, a.wants(1, 5), 1<<40)
	granted(t, a.do(claims.Round{Enter: claims.Reset, Listening: true, Cursor: 4}), 4)
	granted(t, a.wants(1, 5), 5, 5)
	// Another gateway has noticed it, too, but later.
	granted(t, a.do(claims.Round{Enter: claims.Reset, Listening: true, Cursor: 4}), 5)
	got := a.do(claims.Round{Enter: claims.Reset, Listening: true, Cursor: 4, Resets: 1})
	granted(t, got, 4)
	if got.Resets != 2 {
		t.Errorf("%d resets", got.Resets)
	}
}

// What is kept is bounded, and forgotten when nobody has cared for long.
func TestT2ClaimsAreBounded(t *testing.T) {
	t.Parallel()
	w, list := rivals(t, 2)
	a, b := list[0], list[1]
	a.begin(0)
	next := uint64(0)
	for range claims.MaxOpen/claims.MaxRound + 1 {
		candidates := make([]uint64, claims.MaxRound)
		for i := range candidates {
			next++
			candidates[i] = next
		}
		a.wants(len(candidates), candidates...)
	}
	got := a.do(claims.Round{Listening: true, Recall: true})
	if got.Floor != claims.MaxOpen {
		t.Fatalf("the floor is %d", got.Floor)
	}
	if got.Complete || !got.Recalled || len(got.Table) != claims.MaxOpen {
		t.Fatalf("%d of them", len(got.Table))
	}
	b.begin(0)
	if got := b.do(claims.Round{Listening: true, Copy: true}); got.Recalled {
		t.Fatal("a copy of them all")
	}
	b.leave(0)
	done := make([]uint64, 0, claims.MaxOpen)
	for position := uint64(3); position <= claims.MaxOpen; position++ {
		done = append(done, position)
	}
	for part := range slices.Chunk(done, 1000) {
		a.do(claims.Round{Listening: true, Done: part})
	}
	a.leave(int64(next))
	if lost, err := b.m.p.Sweep(t.Context()); err != nil || len(lost) != 0 {
		t.Fatalf("swept %v, %v", lost, err)
	}
	w.Advance(claims.Keep + time.Second)
	lost, err := b.m.p.Sweep(t.Context())
	if err != nil || len(lost) != 2 || lost[0].Topic != jobs {
		t.Fatalf("swept %v, %v", lost, err)
	}
	if keys := w.raw.Keys(t.Context(), "{aether}:0:tb*").Val(); len(keys) != 0 {
		t.Errorf("left are %q", keys)
	}
	if lost, err := b.m.p.Sweep(t.Context()); err != nil || len(lost) != 0 {
		t.Errorf("swept again %v, %v", lost, err)
	}
}

// Many addresses in one exchange; a script that Redis has forgotten.
func TestRoundsOfManyAddresses(t *testing.T) {
	t.Parallel()
	w, list := rivals(t, 1)
	rounds := make([]*claims.Round, 100)
	for i := range rounds {
		rounds[i] = &claims.Round{Topic: fmt.Sprint("tb::w::", i), Serial: 1, Enter: claims.Begin, Listening: true, Tail: int64(i), Left: claims.None, Back: claims.None}
	}
	if err := w.raw.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if err := list[0].m.p.Do(t.Context(), rounds); err != nil {
		t.Fatal(err)
	}
	for i, r := range rounds {
		if r.Answer.Status != claims.OK || r.Answer.Floor != int64(i) {
			t.Fatalf("%s: %+v", r.Topic, r.Answer)
		}
	}
}
