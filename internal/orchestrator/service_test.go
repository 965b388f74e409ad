package orchestrator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/store"
)

const echo = "ag::w::echo::1"

// Test132OneStart: whatever many gateways are told of at the same time is one
// start; who cannot be started, or is there, is not.
func Test132OneStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.gateway("a", nil), w.gateway("b", nil)
	w.register(a, "echo")
	w.hold("ag::w::echo::there", true)
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			for _, to := range []string{echo, "ag::w::echo::there", "ag::w::other::1", "us::u::1", "ga::w", "tu::w::echo::x", "nonsense"} {
				[]*Service{a, b}[i%2].Waits(to, fmt.Sprintf("us::u%d::1", i), "w")
			}
		})
	}
	all.Wait()
	orc := w.orchestrator(b, "1", "other", "process")
	got := map[string]bool{orc.next().GetAssignedTo(): true, orc.next().GetAssignedTo(): true}
	if !got[echo] || !got["tu::w::echo::x"] {
		t.Errorf("started %v", got)
	}
	orc.nothing(100 * time.Millisecond)
	if n := len(w.starts(echo)); n != 1 {
		t.Errorf("%d starts", n)
	}
	if x := w.starts(echo)[0]; x.Creator == "" || x.MaxAttempts != defaultAttempts || x.Mode != store.TaskStart {
		t.Errorf("%+v", x)
	}
}

// TestRow20OrchestratorGone: whoever has a start in hand and goes, another one has
// it at once, as a new attempt whose token alone is good. One that comes back at
// once keeps what it has.
func TestRow20OrchestratorGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, b := w.gateway("a", nil), w.gateway("b", nil)
	w.register(a, "echo")
	first := w.orchestrator(a, "1", "process")
	a.Waits(echo, "us::u::1", "w")
	one := first.next()
	w.orchestrator(b, "of another profile", "other")

	first.leave(false) // it resumes
	back := w.orchestrator(b, "1", "process")
	eventually(t, func() bool { return w.starts(echo)[0].HolderGateway == "b" }, "taken over")
	if x := w.state(echo, store.TaskAssigned, 1); x.Holder != back.id {
		t.Errorf("held by %s", x.Holder)
	}
	second := w.orchestrator(a, "2", "*")
	back.gone(true)
	two := second.next()
	if two.GetTaskId() != one.GetTaskId() {
		t.Errorf("another task: %s, %s", one.GetTaskId(), two.GetTaskId())
	}
	if x := w.state(echo, store.TaskAssigned, 2); x.Holder != second.id {
		t.Errorf("held by %s", x.Holder)
	}
	if _, _, err := w.connect(b, one, "s0"); !errors.Is(err, auth.ErrTaskToken) {
		t.Errorf("with the first token: %v", err)
	}
	if _, _, err := w.connect(b, two, "s1"); err != nil {
		t.Fatal(err)
	}
	w.state(echo, store.TaskRunning, 2)
}

// Test133TakesAndStartsNothing: an orchestrator that takes everything and starts
// nothing has so many attempts, each until the deadline; then the start has
// failed. Old mail alone does not start it again at once; a new message does.
func Test133TakesAndStartsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.gateway("a", func(o *Options) { o.StartDeadline, o.MaxAttempts = 20*time.Millisecond, 2 })
	w.register(s, "echo")
	orc := w.orchestrator(s, "1", "process")
	s.Waits(echo, "us::u::1", "w")
	one, two := orc.next(), orc.next()
	if one.GetTaskId() != two.GetTaskId() || one.GetLaunchParams()[AuthToken] == two.GetLaunchParams()[AuthToken] {
		t.Error("the second attempt is not one of the same task with another token")
	}
	failed := w.state(echo, store.TaskFailed, 2)
	if failed.Creator != "us::u::1" || failed.TokenHash != "" || failed.Reason == "" {
		t.Errorf("%+v", failed)
	}
	w.mail(echo, true)
	s.Left(echo)
	s.Sweep()
	orc.nothing(300 * time.Millisecond)
	s.Waits(echo, "us::v::1", "w")
	if x := orc.next(); x.GetTaskId() == one.GetTaskId() {
		t.Error("the failed start was revived")
	}
}

// Test134Grace: a worker that connects makes its start run; one that has gone may
// come back within the grace window; a clean end completes it, after which the
// token is worth nothing.
func Test134Grace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.gateway("a", nil)
	w.register(s, "echo")
	orc := w.orchestrator(s, "1", "process")
	s.Waits(echo, "us::u::1", "w")
	a := orc.next()
	worker, _, err := w.connect(s, a, "s1")
	if err != nil {
		t.Fatal(err)
	}
	w.state(echo, store.TaskRunning, 1)
	orc.gone(true) // that is nothing to the worker
	w.disconnect(s, worker, false)
	eventually(t, func() bool { return !w.starts(echo)[0].DisconnectedAt.IsZero() }, "its absence is noted")
	if worker, _, err = w.connect(s, a, "s2"); err != nil {
		t.Fatal(err)
	}
	if x := w.state(echo, store.TaskRunning, 1); !x.DisconnectedAt.IsZero() || x.HolderSession != "s2" {
		t.Errorf("back: %+v", x)
	}
	w.disconnect(s, worker, true)
	w.state(echo, store.TaskCompleted, 1)
	if _, _, err := w.connect(s, a, "s3"); !errors.Is(err, auth.ErrTaskToken) {
		t.Errorf("after the end: %v", err)
	}
}

// Test134GraceIsOver: who does not come back is tried anew, with another token.
func Test134GraceIsOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.gateway("a", func(o *Options) { o.GraceWindow = 100 * time.Millisecond })
	w.register(s, "echo")
	orc := w.orchestrator(s, "1", "process")
	s.Waits(echo, "us::u::1", "w")
	b := orc.next()
	worker, _, err := w.connect(s, b, "s4")
	if err != nil {
		t.Fatal(err)
	}
	w.disconnect(s, worker, false)
	c := orc.next()
	if c.GetTaskId() != b.GetTaskId() {
		t.Error("not the same task")
	}
	w.state(echo, store.TaskAssigned, 2)
	if _, _, err := w.connect(s, b, "s5"); !errors.Is(err, auth.ErrTaskToken) {
		t.Errorf("with the token of the attempt before: %v", err)
	}
}

// A task that is cancelled ends its worker's session within two seconds, on
// whatever gateway (gateway.md 3.4).
func Test34CancelledEndsItsWorker(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.gateway("a", nil)
	w.register(s, "echo")
	orc := w.orchestrator(s, "1", "process")
	s.Waits(echo, "us::u::1", "w")
	a := orc.next()
	_, ended, err := w.connect(s, a, "s1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (changes{w}).Change(context.Background(), a.GetTaskId(), func(t *store.Task) error {
		t.State, t.TokenHash, t.EndedAt = store.TaskCancelled, "", time.Now()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("the session goes on")
	}
}

// TestL6: mail that was stored while its reader was still taken for there is found
// when the session has ended; of one without mail nothing is started.
func TestL6EndedSessionIsLookedAt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.gateway("a", nil)
	w.register(s, "echo")
	orc := w.orchestrator(s, "1", "process")
	w.hold(echo, true)
	s.Waits(echo, "us::u::1", "w")
	s.Left("ag::w::echo::without")
	orc.nothing(200 * time.Millisecond)
	w.mail(echo, true)
	w.hold(echo, false)
	s.Left(echo)
	if a := orc.next(); a.GetAssignedTo() != echo {
		t.Errorf("started %s", a.GetAssignedTo())
	}
	orc.nothing(100 * time.Millisecond)
}

// What was to be started by a gateway that is dead is found by another one.
func TestL6DeadGateway(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.gateway("a", nil)
	w.mu.Lock()
	w.gateways["b"] = true
	w.mu.Unlock()
	w.register(s, "echo")
	orc := w.orchestrator(s, "1", "process")
	eventually(t, func() bool {
		s.sweeps.mu.Lock()
		defer s.sweeps.mu.Unlock()
		return !s.sweeps.last.IsZero() && len(s.sweeps.due) == 0
	}, "the first sweeps are over")
	w.mail(echo, true)
	w.mu.Lock()
	delete(w.gateways, "b")
	w.mu.Unlock()
	if a := orc.next(); a.GetAssignedTo() != echo {
		t.Errorf("started %s", a.GetAssignedTo())
	}
}

// A store that is away when mail comes, and when a worker ends, is made up for.
func TestStoreAwayIsMadeUpFor(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.gateway("a", nil)
	w.register(s, "echo")
	orc := w.orchestrator(s, "1", "process")
	w.away.Store(true)
	s.Waits(echo, "us::u::1", "w")
	orc.nothing(100 * time.Millisecond)
	w.away.Store(false)
	a := orc.next()
	worker, _, err := w.connect(s, a, "s1")
	if err != nil {
		t.Fatal(err)
	}
	w.away.Store(true)
	w.disconnect(s, worker, true)
	if _, _, err := w.connect(s, a, "s2"); !errors.Is(err, auth.ErrKeysAway) {
		t.Errorf("while the store is away: %v", err)
	}
	w.away.Store(false)
	w.state(echo, store.TaskCompleted, 1)
}

// Starts that are beyond a budget wait.
func Test133Budgets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, b := range []Budgets{{Sender: 3}, {Workspace: 3}, {Implementation: 3}} {
		s := w.gateway(fmt.Sprint(i), func(o *Options) { o.Budgets = b })
		if i == 0 {
			w.register(s, "echo")
		}
		eventually(t, s.Armed, "known")
		for n := range 6 {
			s.Waits(fmt.Sprintf("ag::w%d::echo::%d", i, n), fmt.Sprintf("us::u%d::1", i), "")
			eventually(t, func() bool { return s.stats.Started.Load()+s.stats.OverBudget.Load() == uint64(n+1) }, "looked at")
		}
		if n := s.stats.Started.Load(); n != 3 {
			t.Errorf("%+v: %d starts", b, n)
		}
	}
}

// Who comes with a credential of its own while it is being started has been
// started.
func TestArrivesByItself(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.gateway("a", nil)
	w.register(s, "echo")
	s.Waits(echo, "us::u::1", "w")
	w.state(echo, store.TaskQueued, 1)
	x := Worker{Session: "s1", Identity: echo}
	w.hold(echo, true)
	if err := s.Came(context.Background(), x); err != nil {
		t.Fatal(err)
	}
	w.state(echo, store.TaskRunning, 1)
	eventually(t, func() bool { s.workers.mu.Lock(); defer s.workers.mu.Unlock(); return s.workers.by["s1"] != nil }, "known")
	w.disconnect(s, &x, true)
	w.state(echo, store.TaskCompleted, 1)
}

// TestAskedForWhileInHand: a message that comes while old mail is looked at does
// not rest with it.
func TestAskedForWhileInHand(t *testing.T) {
	t.Parallel()
	var l looks
	l.init()
	now := time.Unix(1_700_000_000, 0)
	l.add(echo, "", "", now, time.Time{})
	list, _ := l.take(now)
	if len(list) != 1 || list[0].sender != "" {
		t.Fatalf("%+v", list)
	}
	l.add(echo, "us::v::1", "w", now, time.Time{})
	l.done(echo, now, 10*time.Minute)
	list, after := l.take(now.Add(firstRetry))
	if len(list) != 1 || list[0].sender != "us::v::1" || list[0].tries != 0 {
		t.Errorf("%+v, nothing for %v", list, after)
	}
}

// More than there is room for is found by a sweep.
func TestLooksOverflow(t *testing.T) {
	var l looks
	l.init()
	now := time.Now()
	for i := range maxLooks {
		if !l.add(fmt.Sprint(i), "s", "w", now, time.Time{}) {
			t.Fatal("no room")
		}
	}
	if l.add("one more", "s", "w", now, time.Time{}) || l.overflowed() {
		t.Error("there is room")
	}
	if !l.add("1", "s", "w", now, time.Time{}) {
		t.Error("what is there already found no room")
	}
	for l.size() > maxLooks/2 {
		list, _ := l.take(now)
		for _, k := range list {
			l.done(k.identity, now, 0)
		}
	}
	if !l.overflowed() || l.overflowed() {
		t.Error("it is not told, once")
	}
}
