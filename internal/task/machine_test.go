package task

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// transitions is the life of a task as it was thought out: a row for each event,
// a column for each state in the order of [States]. A dash is impossible; the
// others are what follows, by its first letters.
const transitions = `
event      queued assigned starting running w_input w_auth w_dep hibern compl failed canc rejec
assigned   assig  -        -        -       -       -      -     -      -     -      -    -
started    -      start    -        -       -       -      -     -      -     -      -    -
run        -      runni    runni    -       -       -      -     -      -     -      -    -
completed  -      compl    compl    compl   -       -      -     -      -     -      -    -
failed     faile  faile    faile    faile   faile   faile  faile faile  -     -      -    -
cancelled  cance  cance    cance    cance   cance   cance  cance cance  -     -      -    -
rejected   rejec  rejec    rejec    -       -       -      -     -      -     -      -    -
put_back   -      queue    queue    -       -       -      -     -      -     -      -    -
tried_again queue queue    queue    queue   queue   queue  queue queue  -     -      -    -
paused     waiti  waiti    -        waiti   -       -      -     -      -     -      -    -
w_input    -      waiti    waiti    waiti   -       -      -     -      -     -      -    -
w_auth     -      waiti    waiti    waiti   -       -      -     -      -     -      -    -
w_dep      -      waiti    waiti    waiti   -       -      -     -      -     -      -    -
hibernated -      hiber    hiber    hiber   -       -      -     -      -     -      -    -
resumed    -      -        -        -       runni   runni  runni queue  -     -      -    -
retried    -      -        -        -       -       -      -     -      queue queue  queue queue
`

// Every event in every state does what the table above says, and nothing else.
func TestEveryEventInEveryState(t *testing.T) {
	t.Parallel()
	rows := strings.Split(strings.TrimSpace(transitions), "\n")[1:]
	if len(rows) != int(eventEnd)-1 {
		t.Fatalf("%d rows for %d events", len(rows), eventEnd-1)
	}
	now := time.UnixMilli(1000)
	for i, row := range rows {
		e := Event(i + 1)
		cells := strings.Fields(row)[1:]
		if len(cells) != len(States()) {
			t.Fatalf("%s: %d columns", e, len(cells))
		}
		for j, from := range States() {
			before := store.Task{ID: "t", State: from, Attempt: 1, AssignedTo: "w", Holder: "w", TokenHash: "h", ResumeTo: store.TaskRunning}
			after := before
			err := Move(&after, e, "why", now)
			if want := cells[j]; want == "-" {
				if !errors.Is(err, ErrImpossible) || fmt.Sprint(after) != fmt.Sprint(before) {
					t.Errorf("%s of a task that is %s: %v, %+v", e, from, err, after)
				}
				continue
			}
			if err != nil || !strings.HasPrefix(string(after.State), cells[j]) {
				t.Errorf("%s of a task that is %s: %v, it is %s, want %s", e, from, err, after.State, cells[j])
				continue
			}
			check(t, e, &before, &after, now)
		}
	}
}

// check are the properties of every transition.
func check(t *testing.T, e Event, before, after *store.Task, now time.Time) {
	t.Helper()
	over := after.State.Over()
	if over != !after.EndedAt.IsZero() {
		t.Errorf("%s: %s, ended at %v", e, after.State, after.EndedAt)
	}
	if (over || after.State == store.TaskQueued) && (after.TokenHash != "" || after.Holder != "") {
		t.Errorf("%s: %s, and somebody holds it: %+v", e, after.State, after)
	}
	if after.State == store.TaskQueued && after.AssignedTo != "" {
		t.Errorf("%s: it is queued, and %s's", e, after.AssignedTo)
	}
	more := int32(0)
	if e == Again || e == Retry {
		more = 1
	}
	if after.Attempt != before.Attempt+more {
		t.Errorf("%s: attempt %d", e, after.Attempt)
	}
	if after.State == store.TaskRunning && after.StartedAt.IsZero() {
		t.Errorf("%s: it runs and has not begun", e)
	}
	if !after.ChangedAt.Equal(now) || after.Reason != "why" {
		t.Errorf("%s: %+v", e, after)
	}
}

// Each state goes back to where it was from a pause.
func TestPauseGoesBack(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1000)
	for _, from := range []store.TaskState{store.TaskQueued, store.TaskAssigned, store.TaskRunning} {
		x := store.Task{State: from, Attempt: 1, AssignedTo: "w", Holder: "w"}
		if err := errors.Join(Move(&x, Pause, "", now)); err != nil || x.PausedAt.IsZero() {
			t.Fatal(err, x)
		}
		if err := Move(&x, Resume, "", now); err != nil || x.State != from || !x.PausedAt.IsZero() || x.ResumeTo != "" {
			t.Errorf("%s: %v, %+v", from, err, x)
		}
		if from != store.TaskQueued && x.AssignedTo != "w" {
			t.Errorf("%s: it is %q's", from, x.AssignedTo)
		}
	}
}

// An attempt that fails is followed by another one as long as there are some.
func TestFailOrRetry(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	spec := Spec{Retry: &Policy{Backoff: 3, ScheduleMS: []int64{10, 0}}}
	x := store.Task{State: store.TaskRunning, Attempt: 1, MaxAttempts: 3, Spec: spec.Encode()}
	for attempt, want := range []struct {
		state store.TaskState
		due   time.Time
	}{{store.TaskQueued, now.Add(10 * time.Millisecond)}, {store.TaskQueued, time.Time{}}, {store.TaskFailed, time.Time{}}} {
		if err := FailOrRetry(&x, "why", now, 0); err != nil || x.State != want.state || !x.DueAt.Equal(want.due) || x.Reason != "why" {
			t.Fatalf("attempt %d: %v, %+v", attempt, err, x)
		}
		if x.State == store.TaskQueued {
			x.State = store.TaskRunning
		}
	}
	if err := FailOrRetry(&x, "why", now, 0); !errors.Is(err, ErrImpossible) {
		t.Error(err)
	}
}

func TestDelay(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name    string
		p       *Policy
		attempt int32
		draw    float64
		want    time.Duration
	}{
		{"none", nil, 1, 0, time.Second},
		{"doubles", nil, 3, 0, 4 * time.Second},
		{"bounded", nil, 1000, 0, time.Minute},
		{"fixed", &Policy{Backoff: 1, InitialMS: 500}, 9, 0, 500 * time.Millisecond},
		{"longest", &Policy{Backoff: 2, InitialMS: 500, MaxMS: 700}, 2, 0, 700 * time.Millisecond},
		{"jitter", &Policy{Backoff: 1, InitialMS: 1000, Jitter: 0.5}, 1, 0.5, 750 * time.Millisecond},
		{"schedule", &Policy{Backoff: 3, ScheduleMS: []int64{5, 7}}, 2, 0, 7 * time.Millisecond},
		{"behind the schedule", &Policy{Backoff: 3, ScheduleMS: []int64{5, 7}}, 9, 0, 7 * time.Millisecond},
		{"a first above the longest", &Policy{Backoff: 1, InitialMS: 120_000}, 1, 0, 2 * time.Minute},
	} {
		if got := x.p.Delay(x.attempt, x.draw); got != x.want {
			t.Errorf("%s: %v, want %v", x.name, got, x.want)
		}
	}
}
