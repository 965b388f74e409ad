package task

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

const (
	// maxSubscribed is how many subscriptions a session may have, maxFollowed of
	// how many tasks one is told.
	maxSubscribed = 64
	maxFollowed   = 1000
	// pollEvery is how often the store is asked for what was not heard.
	pollEvery = 2 * time.Second
)

// subscriptions are those of this gateway's sessions and operators. Its lock is
// a leaf but for what events are given to.
type subscriptions struct {
	mu     sync.Mutex
	by     map[string]*Subscription              // id
	of     map[string]map[*Subscription]struct{} // task → who follows it
	onAll  []func(change)
	lastAt time.Time // of the last poll
}

// Subscription is told of the changes of a task, and of its descendants if it is
// recursive.
type Subscription struct {
	ID, Task, owner string
	recursive       bool
	give            func(*aetherv1.TaskEvent)
	seen            map[string]int64 // revision told of, of each task that is followed; at most maxFollowed
	state           map[string]store.TaskState
}

func (l *subscriptions) init() {
	l.by, l.of = map[string]*Subscription{}, map[string]map[*Subscription]struct{}{}
}

// follow makes a task one of those of a subscription. The lock is held.
func (l *subscriptions) follow(x *Subscription, task string) bool {
	if _, ok := x.seen[task]; ok {
		return true
	}
	if len(x.seen) >= maxFollowed {
		return false
	}
	x.seen[task] = 0
	if l.of[task] == nil {
		l.of[task] = map[*Subscription]struct{}{}
	}
	l.of[task][x] = struct{}{}
	return true
}

// dispatch gives a change to those who follow the task, or its parent.
func (l *subscriptions) dispatch(c *change) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.onAll {
		f(*c)
	}
	for x := range l.of[c.Parent] {
		if c.Parent == "" {
			break
		}
		if x.recursive {
			l.follow(x, c.ID)
		} else {
			x.child(c)
		}
	}
	for x := range l.of[c.ID] {
		x.changed(c)
	}
}

// changed tells of a change that is newer than what was told.
func (x *Subscription) changed(c *change) {
	if c.Rev <= x.seen[c.ID] {
		return
	}
	from := c.From
	if known := x.state[c.ID]; known != "" {
		from = known // also if something between was not heard
	}
	x.seen[c.ID], x.state[c.ID] = c.Rev, c.To
	e := x.event(c)
	e.Event = &aetherv1.TaskEvent_StatusChanged{StatusChanged: &aetherv1.TaskStatusChangedEvent{
		FromStatus: Status(from), ToStatus: Status(c.To), Reason: c.Reason,
	}}
	x.give(e)
}

func (x *Subscription) event(c *change) *aetherv1.TaskEvent {
	return &aetherv1.TaskEvent{TaskId: c.ID, EmittedAtUnixMs: c.AtMS, Workspace: c.Workspace, ParentTaskId: c.Parent, SubscriptionId: x.ID}
}

// child tells of a change of a child of the task.
func (x *Subscription) child(c *change) {
	lifecycle := string(c.To)
	if c.From == "" {
		lifecycle = "created"
	}
	e := x.event(c)
	e.TaskId, e.ParentTaskId = c.Parent, ""
	e.Event = &aetherv1.TaskEvent_ChildLifecycle{ChildLifecycle: &aetherv1.TaskChildLifecycleEvent{
		ChildTaskId: c.ID, ChildStatus: Status(c.To), Lifecycle: lifecycle,
	}}
	x.give(e)
}

// Subscribe has events of a task given to a session until it ends the
// subscription. What has changed after a time is told at once, as far as it is
// the last change. give does not block.
func (s *Service) Subscribe(ctx context.Context, c *Caller, op *aetherv1.TaskSubscriptionOperation, give func(*aetherv1.TaskEvent)) *aetherv1.TaskSubscriptionOperationResponse {
	answer := &aetherv1.TaskSubscriptionOperationResponse{
		ClientRequestId: op.GetClientRequestId(), TaskId: op.GetTaskId(), SubscriptionId: op.GetSubscriptionId(),
	}
	var err *wireerr.Error
	switch op.GetOp() {
	case aetherv1.TaskSubscriptionOperation_OP_TYPE_SUBSCRIBE:
		answer.SubscriptionId, err = s.subscribe(ctx, c, op, give)
	case aetherv1.TaskSubscriptionOperation_OP_TYPE_UNSUBSCRIBE:
		err = s.unsubscribe(c, op)
	default:
		err = wireerr.New(wireerr.InvalidArgument, "op %d of a subscription is unknown", op.GetOp())
	}
	if answer.Success = err == nil; err != nil {
		answer.Error = err.Error()
	}
	return answer
}

func (s *Service) subscribe(ctx context.Context, c *Caller, op *aetherv1.TaskSubscriptionOperation, give func(*aetherv1.TaskEvent)) (string, *wireerr.Error) {
	if op.GetStartTimestampUnixMs() < 0 {
		return "", wireerr.New(wireerr.InvalidArgument, "start_timestamp_unix_ms is negative")
	}
	t, err := s.visible(ctx, c, op.GetTaskId())
	if err != nil {
		return "", err
	}
	x, err := s.follow(ctx, t, c.Session, op.GetSubscriptionId(), op.GetRecursive(), give)
	if err != nil {
		return "", err
	}
	if from := op.GetStartTimestampUnixMs(); from > 0 && t.ChangedAt.UnixMilli() >= from {
		s.subs.mu.Lock()
		defer s.subs.mu.Unlock()
		if x.seen[t.ID] <= t.Rev {
			e := x.event(&change{ID: t.ID, Workspace: t.Workspace, Parent: t.ParentID, AtMS: t.ChangedAt.UnixMilli()})
			e.Event = &aetherv1.TaskEvent_StatusChanged{StatusChanged: &aetherv1.TaskStatusChangedEvent{ToStatus: Status(t.State), Reason: t.Reason}}
			x.give(e)
		}
	}
	return x.ID, nil
}

// follow makes a subscription of an owner: a session, or an operator's stream.
func (s *Service) follow(ctx context.Context, t *store.Task, owner, id string, recursive bool, give func(*aetherv1.TaskEvent)) (*Subscription, *wireerr.Error) {
	var below []store.Task
	if recursive {
		var err error
		if below, err = s.o.Store.Tasks(ctx, store.TaskFilter{ParentID: t.ID, Descendants: true}, store.TaskPage{}, maxFollowed); err != nil {
			return nil, s.away(err)
		}
	}
	if len(id) > maxID {
		return nil, wireerr.New(wireerr.InvalidArgument, "subscription_id has %d bytes, %d are allowed", len(id), maxID)
	}
	if id == "" {
		id = uuid.NewString()
	}
	l := &s.subs
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, x := range l.by {
		if x.owner == owner {
			n++
		}
	}
	key := owner + "\x00" + id
	switch {
	case l.by[key] != nil:
		return nil, wireerr.New(wireerr.InvalidArgument, "there is a subscription of that id already")
	case n >= maxSubscribed:
		return nil, wireerr.New(wireerr.RateLimited, "a session may have %d subscriptions", maxSubscribed)
	}
	x := &Subscription{ID: id, Task: t.ID, owner: owner, recursive: recursive, give: give, seen: map[string]int64{}, state: map[string]store.TaskState{}}
	l.by[key] = x
	for _, each := range append([]store.Task{*t}, below...) {
		if l.follow(x, each.ID) {
			x.seen[each.ID], x.state[each.ID] = each.Rev, each.State
		}
	}
	return x, nil
}

func (s *Service) unsubscribe(c *Caller, op *aetherv1.TaskSubscriptionOperation) *wireerr.Error {
	l := &s.subs
	l.mu.Lock()
	defer l.mu.Unlock()
	found := false
	for key, x := range l.by {
		if x.owner == c.Session && (op.GetSubscriptionId() == x.ID || op.GetSubscriptionId() == "" && op.GetTaskId() == x.Task) {
			l.remove(key, x)
			found = true
		}
	}
	if !found {
		return wireerr.New(wireerr.NotFound, "there is no such subscription")
	}
	return nil
}

// remove ends a subscription. The lock is held.
func (l *subscriptions) remove(key string, x *Subscription) {
	delete(l.by, key)
	for task := range x.seen {
		delete(l.of[task], x)
		if len(l.of[task]) == 0 {
			delete(l.of, task)
		}
	}
}

// Forget ends the subscriptions of a session.
func (s *Service) Forget(session string) {
	l := &s.subs
	l.mu.Lock()
	defer l.mu.Unlock()
	for key, x := range l.by {
		if x.owner == session {
			l.remove(key, x)
		}
	}
}

// OnChange has f called for every change that this gateway hears of: its own,
// and, best effort, those of others. f does not block.
func (s *Service) OnChange(f func(id string, state store.TaskState, attempt int32)) {
	s.subs.mu.Lock()
	defer s.subs.mu.Unlock()
	s.subs.onAll = append(s.subs.onAll, func(c change) { f(c.ID, c.To, c.Attempt) })
}

// pollSubscribed asks the store for what subscribers have not heard.
func (s *Service) pollSubscribed(ctx context.Context) {
	l := &s.subs
	now := s.o.Now()
	l.mu.Lock()
	if len(l.of) == 0 || now.Sub(l.lastAt) < pollEvery {
		l.mu.Unlock()
		return
	}
	l.lastAt = now
	ids := make([]string, 0, len(l.of))
	for id := range l.of {
		ids = append(ids, id)
	}
	l.mu.Unlock()
	slices.Sort(ids)
	for part := range slices.Chunk(ids, maxDue) {
		tasks, err := s.o.Store.Tasks(ctx, store.TaskFilter{IDs: part}, store.TaskPage{}, len(part))
		if err != nil {
			s.troubled("tasks that are followed could not be read", err)
			return
		}
		slices.SortFunc(tasks, func(a, b store.Task) int { return cmp.Compare(a.ChangedAt.UnixMilli(), b.ChangedAt.UnixMilli()) })
		for i := range tasks {
			t := &tasks[i]
			c := change{ID: t.ID, Workspace: t.Workspace, Parent: t.ParentID, To: t.State, Attempt: t.Attempt, Rev: t.Rev, AtMS: t.ChangedAt.UnixMilli(), Reason: t.Reason}
			l.mu.Lock()
			for x := range l.of[t.ID] {
				if x.state[t.ID] == t.State {
					x.seen[t.ID] = max(x.seen[t.ID], t.Rev) // nothing that is told
				} else {
					x.changed(&c)
				}
			}
			l.mu.Unlock()
		}
	}
}
