package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/go-cmp/cmp"
)

func queuedTasks(t *testing.T, b *bench) {
	low, old, young, later, over, other := task(0, "low"), task(1, "old"), task(2, "young"), task(3, "later"), task(4, "over"), task(5, "other")
	old.Priority, young.Priority, later.DueAt, over.State, other.Implementation = 40, 40, sec(1), store.TaskAssigned, "x"
	b.createTask(low, old, young, later, over, other)
	all, err := b.s.QueuedTasks(context.Background(), store.TaskFilter{Workspaces: []string{"w"}, Implementation: "worker"}, 10)
	if diff := cmp.Diff([]string{"old", "young", "low"}, ids(all)); diff != "" || err != nil {
		t.Error(diff, err)
	}
	pools, err := b.s.QueuedPools(context.Background(), store.Pool{}, 10)
	if diff := cmp.Diff([]store.Pool{{Workspace: "w", Implementation: "worker"}, {Workspace: "w", Implementation: "x"}}, pools); diff != "" || err != nil {
		t.Error(diff, err)
	}
	pools, err = b.s.QueuedPools(context.Background(), pools[0], 10)
	if len(pools) != 1 || pools[0].Implementation != "x" || err != nil {
		t.Error(pools, err)
	}
	for i, target := range []string{"c", "a", "a", "d"} {
		x := task(10+i, fmt.Sprint("targeted", i))
		x.Mode, x.Target = store.TaskTargeted, target
		b.createTask(x)
	}
	b.change("targeted3", func(x *store.Task) { x.State, x.HolderGateway = store.TaskRunning, "g" })
	targets, err := b.s.QueuedTargets(context.Background(), "", 10)
	if diff := cmp.Diff([]string{"a", "c"}, targets); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if targets, err = b.s.QueuedTargets(context.Background(), "a", 10); !slices.Equal(targets, []string{"c"}) || err != nil {
		t.Error(targets, err)
	}
	b.change("targeted0", func(x *store.Task) { x.AssignedTo, x.State = "z", store.TaskAssigned })
	active, err := b.s.ActiveTasksOf(context.Background(), []string{"z", "a", "none"}, 10)
	if diff := cmp.Diff([]string{"targeted0", "targeted1", "targeted2"}, ids(active)); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if held, err := b.s.TaskGateways(context.Background()); !slices.Equal(held, []string{"g"}) || err != nil {
		t.Error(held, err)
	}
}

func dueTasks(t *testing.T, b *bench) {
	a, c, d := task(0, "a"), task(0, "c"), task(0, "d")
	a.DueAt, c.DueAt = sec(20), sec(10)
	b.createTask(a, c, d)
	for _, x := range []struct {
		now   time.Time
		limit int
		want  []string
	}{{sec(9), 9, nil}, {sec(10), 9, []string{"c"}}, {sec(30), 9, []string{"c", "a"}}, {sec(30), 1, []string{"c"}}} {
		all, err := b.s.DueTasks(context.Background(), x.now, x.limit)
		if diff := cmp.Diff(x.want, ids(all)); diff != "" || err != nil {
			t.Error(diff, err)
		}
	}
}

func toldTasks(t *testing.T, b *bench) {
	ctx := context.Background()
	told := task(0, "told")
	told.Told = 1
	b.createTask(told, task(1, "untold"))
	before := task(100, "").CreatedAt
	want := func(want ...string) {
		t.Helper()
		all, err := b.s.UntoldTasks(ctx, before, 10)
		if diff := cmp.Diff(want, ids(all), emptyTasks); diff != "" || err != nil {
			t.Error(diff, err)
		}
	}
	want("untold")
	b.change("told", func(x *store.Task) { x.State = store.TaskRunning })
	want("told", "untold")
	for _, rev := range []int64{2, 1} { // an older one changes nothing
		if err := b.s.ToldTasks(ctx, map[string]int64{"told": rev}); err != nil {
			t.Error(err)
		}
	}
	want("untold")
	if x := b.task("told"); x.Told != 2 || x.Rev != 2 {
		t.Errorf("%+v", x)
	}
}

func taskWaiters(t *testing.T, b *bench) {
	ctx := context.Background()
	for id, on := range map[string][]string{"w1": {"a", "b", "a"}, "w2": {"a"}, "w3": {"c"}} {
		if err := b.s.WaitTask(ctx, id, on); err != nil {
			t.Fatal(err)
		}
	}
	want := func(on, after string, want ...string) {
		t.Helper()
		got, err := b.s.TaskWaiters(ctx, on, after, 10)
		if diff := cmp.Diff(want, got, emptyTasks); diff != "" || err != nil {
			t.Error(diff, err)
		}
	}
	want("a", "", "w1", "w2")
	want("a", "w1", "w2")
	want("b", "", "w1")
	want("none", "")
	if err := b.s.WaitTask(ctx, "w1", []string{"c"}); err != nil {
		t.Fatal(err)
	}
	want("a", "", "w2")
	want("c", "", "w1", "w3")
}

func beatTasks(t *testing.T, b *bench) {
	b.createTask(task(0, "a"), task(0, "c"))
	for _, beats := range [][]store.TaskBeat{
		{{ID: "a", At: sec(5)}, {ID: "none", At: sec(5)}, {ID: "a", At: sec(3)}}, {{ID: "a", At: sec(4)}},
	} {
		if err := b.s.BeatTasks(context.Background(), beats); err != nil {
			t.Fatal(err)
		}
	}
	if a, c := b.task("a"), b.task("c"); !a.HeartbeatAt.Equal(sec(5)) || !c.HeartbeatAt.IsZero() || a.Rev != 1 {
		t.Errorf("%+v, %+v", a, c)
	}
	// A change does not undo a beat that came between.
	b.change("a", func(x *store.Task) { x.HeartbeatAt = sec(1) })
	if a := b.task("a"); !a.HeartbeatAt.Equal(sec(5)) {
		t.Errorf("%+v", a)
	}
}

func expireTasks(t *testing.T, b *bench) {
	ctx := context.Background()
	over, fresh := task(0, "over"), task(0, "fresh")
	over.EndedAt, fresh.EndedAt = sec(1), sec(3)
	b.createTask(over, fresh, task(0, "active"))
	for _, id := range []string{"over", "active"} {
		if err := b.s.WaitTask(ctx, id, []string{"x"}); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := b.s.ExpireTasks(ctx, sec(3)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if diff := cmp.Diff([]string{"fresh", "active"}, b.listed(store.TaskFilter{})); diff != "" {
		t.Error(diff)
	}
	if got, err := b.s.TaskWaiters(ctx, "x", "", 10); err != nil || !slices.Equal(got, []string{"active"}) {
		t.Error(got, err)
	}
}

func purgeTasks(t *testing.T, b *bench) {
	ctx := context.Background()
	if _, _, err := b.s.CreateWorkspace(ctx, "w", "op"); err != nil {
		t.Fatal(err)
	}
	other := task(0, "other")
	other.Workspace = "v"
	b.createTask(task(0, "a"), other)
	if n, err := b.s.PurgeWorkspaces(ctx); n != 0 || err != nil {
		t.Error(n, err)
	}
	if _, err := b.s.DeleteWorkspace(ctx, "w"); err != nil {
		t.Fatal(err)
	}
	if _, err := b.s.PurgeWorkspaces(ctx); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"other"}, b.listed(store.TaskFilter{})); diff != "" {
		t.Error(diff)
	}
}

func taskTexts(t *testing.T, b *bench) {
	ctx := context.Background()
	for i, text := range odd {
		x := task(i, fmt.Sprint(i))
		x.Type, x.Creator, x.IdempotencyKey, x.Spec, x.Reason, x.ContextID = text, text, text, text, text, text
		b.createTask(x)
		if got := b.listed(store.TaskFilter{Type: text, Creator: text, ContextID: text}); text != "" && len(got) != 1 {
			t.Errorf("%q: %v", text, got)
		}
	}
	for _, bad := range []string{"a\x00b", "\xff"} {
		x := task(0, "bad")
		x.Creator = bad
		if _, _, err := b.s.CreateTask(ctx, x); !errors.Is(err, store.ErrText) {
			t.Errorf("create %q: %v", bad, err)
		}
		_, _, taskErr := b.s.Task(ctx, bad)
		_, listErr := b.s.Tasks(ctx, store.TaskFilter{SeenBy: []string{bad}}, store.TaskPage{}, 1)
		_, pageErr := b.s.Tasks(ctx, store.TaskFilter{}, store.TaskPage{ID: bad}, 1)
		_, waitErr := b.s.TaskWaiters(ctx, bad, "", 1)
		for what, err := range map[string]error{
			"task": taskErr, "list": listErr, "page": pageErr, "waiters": waitErr, "wait": b.s.WaitTask(ctx, "a", []string{bad}),
			"beat": b.s.BeatTasks(ctx, []store.TaskBeat{{ID: bad}}), "told": b.s.ToldTasks(ctx, map[string]int64{bad: 1}),
		} {
			if !errors.Is(err, store.ErrText) {
				t.Errorf("%s %q: %v", what, bad, err)
			}
		}
	}
	x := task(0, "range")
	x.MaxAttempts = 0
	if _, _, err := b.s.CreateTask(ctx, x); !errors.Is(err, store.ErrRange) {
		t.Error(err)
	}
}
