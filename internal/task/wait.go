package task

import (
	"context"
	"math"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Bounds of a wait.
const (
	maxDependsOn = 64
	maxWait      = 30 * 24 * time.Hour
	// maxCircle bounds how many tasks are looked at for a circle of waits.
	maxCircle = 1000
)

// waits are the events of the reasons to wait.
var waits = map[aetherv1.WaitReason]Event{
	aetherv1.WaitReason_WAIT_REASON_INPUT:       AwaitInput,
	aetherv1.WaitReason_WAIT_REASON_AUTHORITY:   AwaitAuthority,
	aetherv1.WaitReason_WAIT_REASON_DEPENDENCY:  AwaitDependency,
	aetherv1.WaitReason_WAIT_REASON_HIBERNATION: Hibernate,
}

// prepareWait reads what a task is to wait for, and records for which others.
func (s *Service) prepareWait(ctx context.Context, c *Caller, op *aetherv1.TaskOperation) (*Wait, *wireerr.Error) {
	w, err := waitOf(op.GetWaitSpec(), s.o.Now())
	if err != nil {
		return nil, err
	}
	t, err := s.visible(ctx, c, op.GetTaskId())
	if err != nil {
		return nil, err
	}
	if s.roles(c, t)&allowedTo[aetherv1.TaskOperation_OP_TYPE_WAIT_FOR] == 0 {
		return nil, wireerr.New(wireerr.PermissionDenied, "only who works on the task can say that it waits")
	}
	for _, id := range w.DependsOn {
		if id == t.ID {
			return nil, wireerr.New(wireerr.InvalidArgument, "a task cannot wait for itself")
		}
		if _, err := s.visible(ctx, c, id); err != nil {
			return nil, err
		}
	}
	if err := s.checkCircle(ctx, t.ID, w.DependsOn); err != nil {
		return nil, err
	}
	if len(w.DependsOn) > 0 {
		// Before the task waits, so that no end is missed.
		if err := s.o.Store.WaitTask(ctx, t.ID, w.DependsOn); err != nil {
			return nil, s.away(err)
		}
	}
	return w, nil
}

// waitOf checks a WaitSpec.
func waitOf(p *aetherv1.WaitSpec, now time.Time) (*Wait, *wireerr.Error) {
	bad := func(format string, args ...any) (*Wait, *wireerr.Error) {
		return nil, wireerr.New(wireerr.InvalidArgument, "wait_spec: "+format, args...)
	}
	if _, ok := waits[p.GetReason()]; !ok {
		return bad("reason must be one of those known")
	}
	h := p.GetHibernation()
	switch latest := now.Add(maxWait).UnixMilli(); {
	case p.GetTimeoutMs() < 0 || p.GetTimeoutMs() > maxWait.Milliseconds():
		return bad("timeout_ms must be 0 to %d", maxWait.Milliseconds())
	case p.GetScheduledWakeUnixMs() < 0 || p.GetScheduledWakeUnixMs() > latest:
		return bad("scheduled_wake_unix_ms must be at most %d days ahead", int(math.Round(maxWait.Hours()/24)))
	case len(p.GetDependsOn()) > maxDependsOn:
		return bad("depends_on has %d entries, %d are allowed", len(p.GetDependsOn()), maxDependsOn)
	case p.GetReason() == aetherv1.WaitReason_WAIT_REASON_DEPENDENCY && len(p.GetDependsOn()) == 0:
		return bad("depends_on is empty")
	case len(h.GetWakeEventTypes()) > maxDependsOn:
		return bad("hibernation has %d wake_event_types, %d are allowed", len(h.GetWakeEventTypes()), maxDependsOn)
	}
	texts := append([]string{p.GetExpectedPrincipal(), p.GetAuthorityRequestId(), h.GetCheckpointKey(), h.GetResumeSessionId(), h.GetEscalationPolicy()}, p.GetDependsOn()...)
	for _, text := range append(texts, h.GetWakeEventTypes()...) {
		if len(text) > maxText {
			return bad("a text has %d bytes, %d are allowed", len(text), maxText)
		}
	}
	if err := checkMap("wait_spec.input_match", p.GetInputMatch()); err != nil {
		return nil, err
	}
	return &Wait{
		Reason: int32(p.GetReason()), Expected: p.GetExpectedPrincipal(), InputMatch: p.GetInputMatch(), AuthorityID: p.GetAuthorityRequestId(),
		DependsOn: p.GetDependsOn(), Any: p.GetWakeOnAny(), TimeoutMS: timeoutAt(p.GetTimeoutMs(), now), WakeMS: p.GetScheduledWakeUnixMs(),
		CheckpointBy: h.GetCheckpointKey(), Session: h.GetResumeSessionId(), Wakers: h.GetWakeEventTypes(), Escalation: h.GetEscalationPolicy(),
		Timeout: p.GetTimeoutMs(),
	}, nil
}

// checkCircle refuses a wait that could never end, because those waited for
// wait for the task.
func (s *Service) checkCircle(ctx context.Context, id string, on []string) *wireerr.Error {
	seen := map[string]bool{}
	for next := on; len(next) > 0; {
		var level []string
		for _, other := range next {
			if seen[other] {
				continue
			}
			seen[other] = true
			if len(seen) > maxCircle {
				return wireerr.New(wireerr.InvalidArgument, "too many tasks wait for each other")
			}
			t, ok, err := s.o.Store.Task(ctx, other)
			if err != nil {
				return s.away(err)
			}
			w := decodeWait(t.Wait)
			if !ok || w == nil || t.State != store.TaskWaitingDependency {
				continue
			}
			for _, awaited := range w.DependsOn {
				if awaited == id {
					return wireerr.New(wireerr.InvalidArgument, "wait_spec: the tasks would wait for each other for ever")
				}
			}
			level = append(level, w.DependsOn...)
		}
		next = level
	}
	return nil
}

// await makes a task wait.
func (s *Service) await(t *store.Task, w *Wait, why string, now time.Time) error {
	if err := Move(t, waits[aetherv1.WaitReason(w.Reason)], why, now); err != nil {
		return err
	}
	t.Wait = w.encode()
	t.DueAt = wakeAt(t, now)
	if len(w.DependsOn) > 0 {
		s.chores.add(chore{kind: choreCheck, id: t.ID}) // some may have ended before
	}
	return nil
}

// recheckEvery is how often it is looked after a task that waits for others, as
// their ends may have been missed.
const recheckEvery = time.Minute

// wakeAt is when a waiting task is looked at; zero: not before something
// happens.
func wakeAt(t *store.Task, now time.Time) time.Time {
	w := decodeWait(t.Wait)
	if w == nil || t.State == store.TaskQueued {
		return time.Time{}
	}
	var first time.Time
	for _, ms := range []int64{w.TimeoutMS, w.WakeMS} {
		if at := time.UnixMilli(ms); ms > 0 && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	if at := now.Add(recheckEvery); len(w.DependsOn) > 0 && (first.IsZero() || at.Before(first)) {
		first = at
	}
	return first
}

// timeoutAt is when a wait of that length ends, in Unix ms; 0: never.
func timeoutAt(ms int64, now time.Time) int64 {
	if ms == 0 {
		return 0
	}
	return now.UnixMilli() + ms
}

// awaited moves a task whose wait is over: it goes on, or has waited in vain.
func (s *Service) awaited(t *store.Task, now time.Time) error {
	w := decodeWait(t.Wait)
	switch {
	case t.State == store.TaskQueued || t.State.Over() || w == nil:
		t.DueAt = time.Time{}
		return nil
	case w.WakeMS > 0 && w.WakeMS <= now.UnixMilli():
		return resume(t, "its time has come", now)
	case w.TimeoutMS > 0 && w.TimeoutMS <= now.UnixMilli():
		return s.fail(t, "what it waited for did not come in time")
	}
	s.chores.add(chore{kind: choreCheck, id: t.ID})
	t.DueAt = wakeAt(t, now)
	return nil
}

// maxWaiters is how many waiting tasks are looked at at a time.
const maxWaiters = 200

// wakeWaiters looks after the tasks that wait for one that has ended.
func (s *Service) wakeWaiters(ctx context.Context, id string) {
	after := ""
	for {
		waiters, err := s.o.Store.TaskWaiters(ctx, id, after, maxWaiters)
		if err != nil {
			s.troubled("who waits for a task could not be read", err)
			return
		}
		for _, waiter := range waiters {
			s.checkWait(ctx, waiter)
			after = waiter
		}
		if len(waiters) < maxWaiters {
			return
		}
	}
}

// checkWait lets a task go on if those that it waits for have ended.
func (s *Service) checkWait(ctx context.Context, id string) {
	t, ok, err := s.o.Store.Task(ctx, id)
	if err != nil || !ok || !waiting(&t) {
		s.troubled("a task that waits could not be read", err)
		return
	}
	w := decodeWait(t.Wait)
	if w == nil || len(w.DependsOn) == 0 {
		return
	}
	awaited, err := s.o.Store.Tasks(ctx, store.TaskFilter{IDs: w.DependsOn, Active: true}, store.TaskPage{}, len(w.DependsOn))
	if err != nil {
		s.troubled("what a task waits for could not be read", err)
		return
	}
	// What does not exist any more has ended long ago.
	if len(awaited) > 0 && (!w.Any || len(awaited) == len(w.DependsOn)) {
		return
	}
	rev := t.Rev
	_, err = s.Change(ctx, id, func(t *store.Task) error {
		if t.Rev != rev || !waiting(t) {
			return ErrUnchanged
		}
		return resume(t, "what it waited for has ended", s.o.Now())
	})
	s.troubled("a task that waits could not go on", err)
}

func waiting(t *store.Task) bool {
	return t.State == store.TaskWaitingDependency || t.State == store.TaskHibernated
}
