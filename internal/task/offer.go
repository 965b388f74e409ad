package task

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/store"
)

// What gateways ask each other.
const (
	kindWilling = "task.willing" // whom of a pool would take a task
	kindHand    = "task.hand"    // hand a task to a worker of yours
)

// maxServed is how many queued tasks are handed out at a time; more follow.
const maxServed = 64

// hand gives a queued task to a worker of this gateway, and reports whether it
// has it: of several who do so at once one wins.
func (s *Service) hand(ctx context.Context, t store.Task, w *Worker) bool {
	if !s.workers.hold(w, &t) {
		return false
	}
	stored, err := s.Change(ctx, t.ID, func(t *store.Task) error {
		if t.State != store.TaskQueued || !t.DueAt.IsZero() || t.Mode == store.TaskStart {
			return impossible(Assign, t.State)
		}
		if err := Move(t, Assign, "", s.o.Now()); err != nil {
			return err
		}
		t.Launch, t.AssignedTo = "", w.Identity
		s.holder(t, w)
		return nil
	})
	if err != nil {
		s.workers.drop(w, t.ID)
		s.troubled("a task could not be handed out", err)
		return false
	}
	if !s.deliver(ctx, &stored, w) {
		return false
	}
	if w.gone() {
		s.chores.add(chore{kind: choreLeft, worker: w})
	}
	return true
}

// deliver sends the worker its task. If that cannot be done, the task is put
// back.
func (s *Service) deliver(ctx context.Context, t *store.Task, w *Worker) bool {
	payload, err := s.o.Store.TaskPayload(ctx, t.ID)
	if err == nil && w.Deliver(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_TaskAssignment{TaskAssignment: Assignment(t, payload)}}) {
		return true
	}
	s.troubled("the payload of a task could not be read", err)
	s.workers.drop(w, t.ID)
	_, err = s.Change(ctx, t.ID, func(t *store.Task) error {
		if t.HolderSession != w.Session || t.State != store.TaskAssigned {
			return ErrUnchanged
		}
		return Move(t, Back, "its worker could not be reached", s.o.Now())
	})
	if err != nil {
		s.troubled("a task could not be put back", err)
		s.workers.hold(w, t) // for the worker's end to find it
	}
	return false
}

// Assignment is a task as its worker gets it. The token of a worker that is to
// be started is not in it.
func Assignment(t *store.Task, payload []byte) *aetherv1.TaskAssignment {
	a := &aetherv1.TaskAssignment{
		TaskId: t.ID, TaskType: t.Type, AssignedTo: t.AssignedTo, AssignedAt: seconds(t.ChangedAt), Profile: t.Profile,
		TargetImplementation: t.Implementation, Workspace: t.Workspace, Payload: payload, TaskClass: aetherv1.TaskClass(t.Class),
	}
	if spec, err := DecodeSpec(t.Spec); err == nil {
		a.Metadata = spec.Metadata
	}
	if w := decodeWait(t.Wait); w != nil { // it comes out of hibernation
		a.CheckpointKey, a.ResumeSessionId = w.CheckpointBy, w.Session
	}
	if to, ok := addressOf(t.Target); ok {
		a.Specifier = to.Specifier()
	}
	return a
}

// candidate is who of a gateway would take a task of a pool.
type candidate struct {
	Identity string `json:"identity"`
	Rank     int    `json:"rank"`
	instance string
}

type poolQuestion struct {
	Pool   store.Pool `json:"pool"`
	Missed []string   `json:"missed,omitempty"`
}

type handQuestion struct {
	ID       string `json:"id"`
	Identity string `json:"identity"`
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic("task: a question cannot be encoded: " + err.Error())
	}
	return b
}

// answerWilling tells another gateway whom of a pool this one has.
func (s *Service) answerWilling(_ context.Context, question []byte) []byte {
	var q poolQuestion
	if json.Unmarshal(question, &q) != nil {
		return nil
	}
	w, rank := s.workers.willing(q.Pool, q.Missed)
	if w == nil {
		return nil
	}
	return encode(candidate{Identity: w.Identity, Rank: rank})
}

// answerHand hands a task to a worker for another gateway.
func (s *Service) answerHand(ctx context.Context, question []byte) []byte {
	var q handQuestion
	if json.Unmarshal(question, &q) != nil {
		return nil
	}
	if w := s.workers.find(q.Identity); w != nil && s.hand(ctx, store.Task{ID: q.ID}, w) {
		return []byte("ok")
	}
	return nil
}

// candidates are the best of each gateway, the best of all first.
func (s *Service) candidates(ctx context.Context, pool store.Pool, missed []string) []candidate {
	var all []candidate
	self := s.o.Presence.Self().ID
	if w, rank := s.workers.willing(pool, missed); w != nil {
		if rank == 0 { // nobody can be better
			return []candidate{{w.Identity, rank, self}}
		}
		all = append(all, candidate{w.Identity, rank, self})
	}
	if list, _ := s.o.Presence.Instances(); len(list) > 1 {
		answers, _ := s.o.Peers.AskAll(ctx, kindWilling, encode(poolQuestion{pool, missed}))
		for _, a := range answers {
			var c candidate
			if a.Err == nil && a.From.ID != self && len(a.Payload) > 0 && json.Unmarshal(a.Payload, &c) == nil {
				c.instance = a.From.ID
				all = append(all, c)
			}
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		if a.Rank != b.Rank {
			return a.Rank - b.Rank
		}
		return strings.Compare(a.Identity, b.Identity)
	})
	return all
}

// servePool hands queued tasks of a pool to workers, as long as there are both.
func (s *Service) servePool(ctx context.Context, pool store.Pool) {
	tasks, err := s.o.Store.QueuedTasks(ctx, store.TaskFilter{
		Workspaces: []string{pool.Workspace}, Implementation: pool.Implementation, Modes: []store.TaskMode{store.TaskPool},
	}, maxServed)
	if err != nil {
		s.troubled("the queue of a pool could not be read", err)
		return
	}
	handed := 0
	for i := range tasks {
		t := &tasks[i]
		missed := strings.Fields(t.Missed)
		all := s.candidates(ctx, pool, missed)
		if len(all) == 0 && len(missed) == 0 {
			return // nobody has room
		}
		for _, c := range all {
			if s.handTo(ctx, t, c) {
				handed++
				break
			}
		}
	}
	if len(tasks) == maxServed && handed > 0 {
		s.chores.add(chore{kind: chorePool, pool: pool})
	}
}

// handTo hands a task to a worker at whatever gateway.
func (s *Service) handTo(ctx context.Context, t *store.Task, c candidate) bool {
	if c.instance == s.o.Presence.Self().ID {
		w := s.workers.find(c.Identity)
		return w != nil && s.hand(ctx, *t, w)
	}
	answer, err := s.o.Peers.Ask(ctx, c.instance, kindHand, encode(handQuestion{t.ID, c.Identity}))
	return err == nil && len(answer) > 0
}

// serveTarget hands queued tasks to the identity that they are for, or has it
// started.
func (s *Service) serveTarget(ctx context.Context, identity string) {
	tasks, err := s.o.Store.QueuedTasks(ctx, store.TaskFilter{Target: identity, Modes: []store.TaskMode{store.TaskTargeted}}, maxServed)
	if err != nil {
		s.troubled("the queue of an identity could not be read", err)
		return
	}
	for i := range tasks {
		if handed, held := s.handTarget(ctx, &tasks[i]); !handed {
			if !held {
				s.launch(ctx, &tasks[i])
			}
			return // it has no room, or is to be started: the others wait
		}
	}
	if len(tasks) == maxServed {
		s.chores.add(chore{kind: choreTarget, id: identity})
	}
}

// handTarget hands a task to its identity; held says that it is connected, or
// may be.
func (s *Service) handTarget(ctx context.Context, t *store.Task) (handed, held bool) {
	if w := s.workers.find(t.Target); w != nil {
		return s.hand(ctx, *t, w), true
	}
	held, certain := s.o.Presence.Held(t.Target)
	if !held {
		return false, !certain
	}
	entry, ok := s.o.Presence.Lookup(t.Target)
	if !ok || entry.Instance == s.o.Presence.Self().ID {
		return false, true // it has just come: it will be welcomed
	}
	return s.handTo(ctx, t, candidate{Identity: t.Target, instance: entry.Instance}), true
}

// launch makes a queued task the one that starts its identity, if there is a way
// to start it and no other does.
func (s *Service) launch(ctx context.Context, t *store.Task) {
	if s.starter() == nil || !s.starter().Launchable(t.Workspace, t.Implementation) {
		return
	}
	if t.Launch != "" {
		s.starter().Launch(*t)
		return
	}
	stored, err := s.Change(ctx, t.ID, func(t *store.Task) error {
		if t.State != store.TaskQueued || t.Launch != "" {
			return ErrUnchanged
		}
		t.Launch = t.Target
		return nil
	})
	if err == nil && stored.Launch != "" && stored.State == store.TaskQueued {
		s.starter().Launch(stored)
	}
}

// strand fails the tasks that wait for an identity that cannot be started.
func (s *Service) strand(ctx context.Context, identity, why string) {
	tasks, err := s.o.Store.QueuedTasks(ctx, store.TaskFilter{Target: identity, Modes: []store.TaskMode{store.TaskTargeted}}, maxServed)
	s.troubled("the queue of an identity could not be read", err)
	for i := range tasks {
		_, err := s.Change(ctx, tasks[i].ID, func(t *store.Task) error {
			if t.State != store.TaskQueued {
				return ErrUnchanged
			}
			return Move(t, Fail, cmpOr(why, "its worker could not be started"), s.o.Now())
		})
		s.troubled("a task that cannot be started could not be failed", err)
	}
	if len(tasks) == maxServed {
		s.chores.add(chore{kind: choreStranded, id: identity, why: why})
	}
}
