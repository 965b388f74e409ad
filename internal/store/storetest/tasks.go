package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var taskTests = []test{
	{"NoTasks", noTasks},
	{"CreateTask", createTask},
	{"TaskOnce", taskOnce},
	{"RaceOfTaskKeys", raceOfTaskKeys},
	{"OneStart", oneStart},
	{"RaceOfStarts", raceOfStarts},
	{"UpdateTask", updateTask},
	{"Row22RaceOfUpdates", raceOfUpdates},
	{"TaskTokens", taskTokens},
	{"TaskPages", taskPages},
	{"TaskFilters", taskFilters},
	{"TasksOfOthers", tasksOfOthers},
	{"QueuedTasks", queuedTasks},
	{"DueTasks", dueTasks},
	{"ToldTasks", toldTasks},
	{"TaskWaiters", taskWaiters},
	{"BeatTasks", beatTasks},
	{"ExpireTasks", expireTasks},
	{"PurgeTasks", purgeTasks},
	{"TaskTexts", taskTexts},
}

// task is one that was created n seconds after a fixed time.
func task(n int, id string) store.Task {
	at := time.UnixMilli(1_800_000_000_000 + int64(n)*1000)
	return store.Task{
		ID: id, Type: "review", Workspace: "w", Creator: "ag::w::boss::1", Implementation: "worker", Mode: store.TaskPool,
		RootID: id, MaxAttempts: 3, Attempt: 1, Spec: "{}", State: store.TaskQueued, CreatedAt: at, ChangedAt: at,
	}
}

func start(n int, id, target string) store.Task {
	t := task(n, id)
	t.Mode, t.Target, t.Launch = store.TaskStart, target, target
	return t
}

var emptyTasks = cmpopts.EquateEmpty()

func (b *bench) createTask(tasks ...store.Task) {
	b.t.Helper()
	for _, t := range tasks {
		if _, created, err := b.s.CreateTask(context.Background(), t); err != nil || !created {
			b.t.Fatal(created, err)
		}
	}
}

func (b *bench) task(id string) store.Task {
	b.t.Helper()
	t, ok, err := b.s.Task(context.Background(), id)
	if err != nil || !ok {
		b.t.Fatal(id, ok, err)
	}
	return t
}

// change updates a task that nobody else changes.
func (b *bench) change(id string, f func(*store.Task)) store.Task {
	b.t.Helper()
	t := b.task(id)
	f(&t)
	t, done, err := b.s.UpdateTask(context.Background(), t)
	if err != nil || !done {
		b.t.Fatal(done, err)
	}
	return t
}

func (b *bench) listed(f store.TaskFilter) []string {
	b.t.Helper()
	all, err := b.s.Tasks(context.Background(), f, store.TaskPage{}, 100)
	if err != nil {
		b.t.Fatal(err)
	}
	n, err := b.s.CountTasks(context.Background(), f, 1000)
	if err != nil || n != len(all) {
		b.t.Errorf("%d are counted, %d listed, %v", n, len(all), err)
	}
	return ids(all)
}

func ids(tasks []store.Task) []string {
	var list []string
	for _, t := range tasks {
		list = append(list, t.ID)
	}
	return list
}

func noTasks(t *testing.T, b *bench) {
	ctx := context.Background()
	if _, ok, err := b.s.Task(ctx, "none"); ok || err != nil {
		t.Error(ok, err)
	}
	if _, ok, err := b.s.TaskByToken(ctx, ""); ok || err != nil {
		t.Error(ok, err)
	}
	if _, done, err := b.s.UpdateTask(ctx, task(0, "none")); done || err != nil {
		t.Error(done, err)
	}
	if got := b.listed(store.TaskFilter{}); len(got) != 0 {
		t.Error(got)
	}
	if err := errors.Join(b.s.ToldTasks(ctx, map[string]int64{"none": 1}), b.s.ToldTasks(ctx, nil), b.s.WaitTask(ctx, "none", nil),
		b.s.BeatTasks(ctx, nil), b.s.BeatTasks(ctx, []store.TaskBeat{{ID: "none", At: sec(1)}})); err != nil {
		t.Error(err)
	}
}

// everything of a task comes back, but what a list leaves out.
func createTask(t *testing.T, b *bench) {
	want := task(1, "a")
	want.Target, want.ParentID, want.RootID, want.ContextID, want.CorrelationID, want.IdempotencyKey = "ag::w::i::s", "p", "r", "c", "co", "k"
	want.Class, want.Priority, want.Spec, want.Payload = 2, 40, `{"a":"ü"}`, []byte{0, 1, 255}
	want.Grant = store.TaskGrant{Mode: "m", SubjectType: "user", SubjectID: "u", RootSubjectType: "rt", RootSubjectID: "ri", GrantID: "g", RootGrantID: "rg", ParentGrantID: "pg"}
	want.AssignedTo, want.Holder, want.HolderSession, want.TokenHash, want.Profile = "as", "h", "hs", "th", "pr"
	want.HolderGateway, want.Launch = "hg", "la"
	want.Reason, want.Wait, want.ResumeTo, want.Missed = "re", "wa", store.TaskRunning, "mi"
	want.StartedAt, want.EndedAt, want.DisconnectedAt, want.PausedAt, want.DueAt = sec(1), sec(2), sec(3), sec(4), sec(5)
	want.Attempt, want.Told = 2, 1
	got, created, err := b.s.CreateTask(context.Background(), want)
	if err != nil || !created {
		t.Fatal(created, err)
	}
	want.Rev = 1
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if payload, err := b.s.TaskPayload(context.Background(), "a"); err != nil || !slices.Equal(payload, want.Payload) {
		t.Errorf("payload %v, %v", payload, err)
	}
	want.Payload = nil
	if diff := cmp.Diff(want, b.task("a")); diff != "" {
		t.Error(diff)
	}
	all, err := b.s.Tasks(context.Background(), store.TaskFilter{}, store.TaskPage{}, 10)
	if diff := cmp.Diff([]store.Task{want}, all, emptyTasks); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// taskOnce: one key of one creator in one workspace is one task.
func taskOnce(t *testing.T, b *bench) {
	ctx := context.Background()
	first := task(0, "a")
	first.IdempotencyKey, first.Payload = "k", []byte("p")
	b.createTask(first)
	second := task(1, "b")
	second.IdempotencyKey = "k"
	got, created, err := b.s.CreateTask(ctx, second)
	if err != nil || created || got.ID != "a" {
		t.Errorf("%v, %v, %v", got.ID, created, err)
	}
	// An insertion whose answer was lost.
	if got, created, err = b.s.CreateTask(ctx, first); err != nil || !created || got.ID != "a" {
		t.Errorf("%v, %v, %v", got.ID, created, err)
	}
	other, elsewhere := second, second
	other.Creator, elsewhere.ID, elsewhere.Workspace = "ag::w::boss::2", "c", "v"
	b.createTask(other, elsewhere, task(2, "d"), task(3, "e")) // no key: any number
}

func raceOfTaskKeys(t *testing.T, b *bench) {
	var mu sync.Mutex
	won, seen := 0, map[string]bool{}
	var fns []func()
	for i := range 16 {
		fns = append(fns, func() {
			x := task(i, fmt.Sprint(i))
			x.IdempotencyKey = "k"
			got, created, err := b.s.CreateTask(context.Background(), x)
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			seen[got.ID] = true
			if created {
				won++
			}
		})
	}
	atOnce(fns...)
	if won != 1 || len(seen) != 1 {
		t.Errorf("%d were created, %v", won, seen)
	}
}

// oneStart: a start that has not ended keeps others away, until it has.
func oneStart(t *testing.T, b *bench) {
	ctx := context.Background()
	b.createTask(start(0, "a", "ag::w::i::1"), start(0, "other", "ag::w::i::2"))
	got, created, err := b.s.CreateTask(ctx, start(1, "b", "ag::w::i::1"))
	if err != nil || created || got.ID != "a" {
		t.Errorf("%v, %v, %v", got.ID, created, err)
	}
	b.change("a", func(x *store.Task) { x.State, x.EndedAt = store.TaskFailed, sec(1) })
	b.createTask(start(2, "c", "ag::w::i::1"))
	// The first cannot come back beside it.
	back := b.task("a")
	back.State, back.EndedAt = store.TaskQueued, time.Time{}
	if _, done, err := b.s.UpdateTask(ctx, back); done || !errors.Is(err, store.ErrActive) {
		t.Errorf("a second start came back: %v, %v", done, err)
	}
	b.change("c", func(x *store.Task) { x.State, x.EndedAt = store.TaskCompleted, sec(1) })
	if _, done, err := b.s.UpdateTask(ctx, back); !done || err != nil {
		t.Errorf("the start did not come back: %v, %v", done, err)
	}
}

func raceOfStarts(t *testing.T, b *bench) {
	var mu sync.Mutex
	won := 0
	var fns []func()
	for i := range 24 {
		fns = append(fns, func() {
			_, created, err := b.s.CreateTask(context.Background(), start(i, fmt.Sprint(i), fmt.Sprint("ag::w::i::", i%2)))
			if err != nil {
				t.Error(err)
			}
			if created {
				mu.Lock()
				won++
				mu.Unlock()
			}
		})
	}
	atOnce(fns...)
	if won != 2 {
		t.Errorf("%d starts of 2 identities", won)
	}
}

// atOnce runs functions at the same time and waits for them.
func atOnce(fns ...func()) {
	var wg sync.WaitGroup
	for _, f := range fns {
		wg.Go(f)
	}
	wg.Wait()
}

func updateTask(t *testing.T, b *bench) {
	ctx := context.Background()
	created := task(0, "a")
	created.Payload = []byte("p")
	b.createTask(created)
	want := b.task("a")
	want.State, want.Attempt, want.AssignedTo, want.Holder, want.HolderSession = store.TaskRunning, 2, "as", "h", "s"
	want.TokenHash, want.Profile, want.Reason, want.Wait, want.ResumeTo, want.Missed = "t", "p", "r", "w", store.TaskAssigned, "m"
	want.HolderGateway, want.Launch = "hg", "la"
	want.ChangedAt, want.StartedAt, want.DisconnectedAt, want.PausedAt, want.DueAt = sec(1), sec(2), sec(3), sec(4), sec(5)
	old := want
	got, done, err := b.s.UpdateTask(ctx, want)
	if err != nil || !done {
		t.Fatal(done, err)
	}
	want.Rev = 2
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want, b.task("a")); diff != "" {
		t.Error(diff)
	}
	if _, done, err := b.s.UpdateTask(ctx, old); done || err != nil {
		t.Errorf("an old revision was changed: %v, %v", done, err)
	}
	// What never changes stays.
	odd := got
	odd.Creator, odd.Spec, odd.Mode, odd.Payload = "x", "x", store.TaskSelf, nil
	if _, done, err := b.s.UpdateTask(ctx, odd); !done || err != nil {
		t.Error(done, err)
	}
	if x := b.task("a"); x.Creator != created.Creator || x.Spec != "{}" || x.Mode != store.TaskPool {
		t.Errorf("%+v", x)
	}
	if payload, err := b.s.TaskPayload(ctx, "a"); string(payload) != "p" || err != nil {
		t.Errorf("%q, %v", payload, err)
	}
}

// raceOfUpdates: of 50 that change one revision one succeeds.
func raceOfUpdates(t *testing.T, b *bench) {
	b.createTask(task(0, "a"))
	at := b.task("a")
	var mu sync.Mutex
	var winners []string
	var fns []func()
	for i := range 50 {
		fns = append(fns, func() {
			mine := at
			mine.State, mine.AssignedTo = store.TaskAssigned, fmt.Sprint(i)
			got, done, err := b.s.UpdateTask(context.Background(), mine)
			if err != nil {
				t.Error(err)
			}
			if done {
				mu.Lock()
				winners = append(winners, got.AssignedTo)
				mu.Unlock()
			}
		})
	}
	atOnce(fns...)
	if len(winners) != 1 || b.task("a").AssignedTo != winners[0] {
		t.Errorf("winners %v, it is %s's", winners, b.task("a").AssignedTo)
	}
}

func taskTokens(t *testing.T, b *bench) {
	ctx := context.Background()
	b.createTask(task(0, "a"), task(0, "b"))
	b.change("a", func(x *store.Task) { x.TokenHash = "h1" })
	if got, ok, err := b.s.TaskByToken(ctx, "h1"); !ok || err != nil || got.ID != "a" {
		t.Errorf("%v, %v, %v", got.ID, ok, err)
	}
	b.change("a", func(x *store.Task) { x.TokenHash = "h2" })
	for _, hash := range []string{"h1", "", "h"} {
		if _, ok, err := b.s.TaskByToken(ctx, hash); ok || err != nil {
			t.Errorf("%q: %v, %v", hash, ok, err)
		}
	}
}

// taskPages: everything comes, page by page, the newest first; tasks of the same
// moment are told apart, and what is created meanwhile is on no later page.
func taskPages(t *testing.T, b *bench) {
	var want []string
	for i := range 25 {
		id := fmt.Sprintf("%02d", i)
		b.createTask(task(i/3, id))
		want = append(want, id)
	}
	slices.Reverse(want)
	var got []string
	for page := (store.TaskPage{}); ; {
		all, err := b.s.Tasks(context.Background(), store.TaskFilter{}, page, 4)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, ids(all)...)
		if len(all) < 4 {
			break
		}
		last := all[len(all)-1]
		page = store.TaskPage{CreatedAt: last.CreatedAt, ID: last.ID}
		b.createTask(task(100+len(got), fmt.Sprint("new ", len(got))))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func taskFilters(t *testing.T, b *bench) {
	a, c, d, e := task(0, "a"), task(1, "c"), task(2, "d"), task(3, "e")
	a.Class, a.Priority, a.ContextID, a.CorrelationID = 1, 30, "ctx", "cor"
	c.ParentID, c.RootID, c.Type, c.Target, c.Mode, c.Workspace = "a", "a", "other", "ag::w::i::1", store.TaskTargeted, "v"
	d.ParentID, d.RootID, d.Implementation, d.State, d.EndedAt, d.Class = "c", "a", "i2", store.TaskCompleted, sec(1), 2
	e.Creator, e.AssignedTo, e.Holder, e.HolderSession, e.State, e.Priority = "us::u::1", "ta::w::worker::1", "h", "s", store.TaskRunning, 50
	e.HolderGateway, e.Launch = "g", "l"
	e.Grant = store.TaskGrant{Mode: "m", SubjectType: "user", SubjectID: "u", GrantID: "g", RootGrantID: "rg"}
	b.createTask(a, c, d, e)
	for _, x := range []struct {
		name string
		f    store.TaskFilter
		want []string
	}{
		{"all", store.TaskFilter{}, []string{"e", "d", "c", "a"}},
		{"workspace", store.TaskFilter{Workspaces: []string{"v"}}, []string{"c"}},
		{"workspaces", store.TaskFilter{Workspaces: []string{"v", "w"}}, []string{"e", "d", "c", "a"}},
		{"state", store.TaskFilter{States: []store.TaskState{store.TaskRunning, store.TaskCompleted}}, []string{"e", "d"}},
		{"not state", store.TaskFilter{NotStates: []store.TaskState{store.TaskRunning, store.TaskCompleted}}, []string{"c", "a"}},
		{"mode", store.TaskFilter{Modes: []store.TaskMode{store.TaskTargeted}}, []string{"c"}},
		{"type", store.TaskFilter{Type: "other"}, []string{"c"}},
		{"creator", store.TaskFilter{Creator: "us::u::1"}, []string{"e"}},
		{"target", store.TaskFilter{Target: "ag::w::i::1"}, []string{"c"}},
		{"assigned", store.TaskFilter{AssignedTo: "ta::w::worker::1"}, []string{"e"}},
		{"holder", store.TaskFilter{Holder: "h", HolderSession: "s"}, []string{"e"}},
		{"implementation", store.TaskFilter{Implementation: "i2"}, []string{"d"}},
		{"parent", store.TaskFilter{ParentID: "a"}, []string{"c"}},
		{"descendants", store.TaskFilter{ParentID: "a", Descendants: true}, []string{"d", "c"}},
		{"root", store.TaskFilter{RootID: "a"}, []string{"d", "c", "a"}},
		{"context", store.TaskFilter{ContextID: "ctx", CorrelationID: "cor"}, []string{"a"}},
		{"class", store.TaskFilter{Class: 1}, []string{"a"}},
		{"not class", store.TaskFilter{NotClasses: []int32{1, 2}}, []string{"e", "c"}},
		{"priority", store.TaskFilter{Priority: 30}, []string{"a"}},
		{"min priority", store.TaskFilter{MinPriority: 30}, []string{"e", "a"}},
		{"changed", store.TaskFilter{ChangedAfter: c.ChangedAt}, []string{"e", "d"}},
		{"subject", store.TaskFilter{SubjectType: "user", SubjectID: "u", AuthorityMode: "m", GrantID: "g", RootGrantID: "rg"}, []string{"e"}},
		{"active", store.TaskFilter{Active: true}, []string{"e", "c", "a"}},
		{"ids", store.TaskFilter{IDs: []string{"a", "e", "none"}}, []string{"e", "a"}},
		{"held", store.TaskFilter{HolderGateway: "g", Launch: "l"}, []string{"e"}},
		{"created", store.TaskFilter{CreatedBefore: c.CreatedAt}, []string{"a"}},
		{"created after", store.TaskFilter{CreatedAfter: c.CreatedAt}, []string{"e", "d"}},
		{"created between", store.TaskFilter{CreatedAfter: a.CreatedAt, CreatedBefore: d.CreatedAt}, []string{"c"}},
		{"launches", store.TaskFilter{Launches: true}, []string{"e"}},
		{"no launches", store.TaskFilter{Launches: true, Workspaces: []string{"v"}}, nil},
		{"no quotes", store.TaskFilter{Type: "' or 1=1 --"}, nil},
	} {
		if diff := cmp.Diff(x.want, b.listed(x.f)); diff != "" {
			t.Errorf("%s: %s", x.name, diff)
		}
	}
	if n, err := b.s.CountTasks(context.Background(), store.TaskFilter{}, 3); n != 3 || err != nil {
		t.Errorf("counted up to 3: %d, %v", n, err)
	}
}

// tasksOfOthers: who has nothing to do with a task does not see it.
func tasksOfOthers(t *testing.T, b *bench) {
	mine, given, behalf, foreign := task(0, "mine"), task(1, "given"), task(2, "behalf"), task(3, "foreign")
	mine.Creator, given.Creator, behalf.Creator, foreign.Creator = "us::u::1", "x", "x", "us::u2::1"
	given.AssignedTo, foreign.Target = "us::u::2", "us::u3::1"
	behalf.Grant.SubjectType, behalf.Grant.SubjectID = "user", "u"
	b.createTask(mine, given, behalf, foreign)
	for _, x := range []struct {
		name string
		f    store.TaskFilter
		want []string
	}{
		{"one window", store.TaskFilter{SeenBy: []string{"us::u::1"}}, []string{"mine"}},
		{"all windows", store.TaskFilter{SeenBy: []string{"us::u::"}}, []string{"given", "mine"}},
		{"and as a subject", store.TaskFilter{SeenBy: []string{"us::u::"}, Subjects: [][2]string{{"user", "u"}}}, []string{"behalf", "given", "mine"}},
		{"a subject only", store.TaskFilter{Subjects: [][2]string{{"user", "u"}, {"user", "z"}}}, []string{"behalf"}},
		{"nobody", store.TaskFilter{SeenBy: []string{"us::"}, Type: "none"}, nil},
		{"around its creator", store.TaskFilter{Around: "us::u::1"}, []string{"mine"}},
		{"around its worker", store.TaskFilter{Around: "us::u::2"}, []string{"given"}},
		{"around its target", store.TaskFilter{Around: "us::u3::1"}, []string{"foreign"}},
	} {
		if diff := cmp.Diff(x.want, b.listed(x.f)); diff != "" {
			t.Errorf("%s: %s", x.name, diff)
		}
	}
}
