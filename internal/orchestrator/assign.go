package orchestrator

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/task"
)

// Bounds of what orchestrators announce and get.
const (
	// MaxProfiles is how many profiles an orchestrator may announce, MaxProfile
	// how long one is, in bytes.
	MaxProfiles = 64
	MaxProfile  = 128
	// maxUnderWay is how many starts one orchestrator has in hand; the others wait,
	// or go to another one.
	maxUnderWay = 256
	// claimPage is how many queued starts are looked at together.
	claimPage = 256
	// claimInterval is how often it is looked for starts that nobody told of.
	claimInterval = time.Second
	// missedPause is how long a start waits for another orchestrator than the one
	// that had it in vain.
	missedPause = 2 * time.Second
	// tellPause is for how long other gateways are not told again that starts wait.
	tellPause = 50 * time.Millisecond
	// maxMissed is how many that had a start in vain are remembered.
	maxMissed = 8
)

// kindQueued tells other gateways that starts wait for orchestrators.
const kindQueued = "orchestrator.queued"

// Orchestrator is one that is connected here.
type Orchestrator struct {
	// Session and Identity are its; Profiles what it can start, [AnyProfile] is
	// everything.
	Session, Identity string
	Profiles          []string
	// Covers reports whether its credential covers a workspace.
	Covers func(workspace string) bool
	// Assign hands it an assignment, which holds a secret. It must not block; it
	// reports false if the session is over.
	Assign func(*aetherv1.TaskAssignment) bool
}

// announces reports whether it starts a profile.
func (o *Orchestrator) announces(profile string) bool {
	return slices.Contains(o.Profiles, AnyProfile) || slices.Contains(o.Profiles, profile)
}

// starters are the orchestrators that are connected here.
type starters struct {
	wake chan struct{}

	mu   sync.Mutex
	list []*connected
	// fresh says that this gateway has queued something that other gateways may
	// not know of; told is when they were told last.
	fresh bool
	told  time.Time
}

// connected is an orchestrator with what it has in hand.
type connected struct {
	Orchestrator
	underWay map[string]bool // starts whose workers have not come
	gone     bool
}

func (l *starters) signal() { nudge(l.wake) }

// queued says that a start was queued here.
func (l *starters) queued() {
	l.mu.Lock()
	l.fresh = true
	l.mu.Unlock()
	l.signal()
}

func (l *starters) empty() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.list) == 0
}

// Join makes an orchestrator known. It is called before its session begins; leave
// is called when it has ended and its lease is free: for good, or so that it may
// resume.
func (s *Service) Join(o Orchestrator) (leave func(forGood bool)) {
	c := &connected{Orchestrator: o, underWay: map[string]bool{}}
	l := &s.starter
	l.mu.Lock()
	l.list = append(l.list, c)
	l.mu.Unlock()
	s.spawn(func() { s.recover(c) })
	l.signal()
	return func(forGood bool) { s.unjoin(c, forGood) }
}

// unjoin takes an orchestrator away, and gives what it had in hand to another one
// unless it comes back at once.
func (s *Service) unjoin(c *connected, forGood bool) {
	l := &s.starter
	l.mu.Lock()
	c.gone = true
	l.list = slices.DeleteFunc(l.list, func(x *connected) bool { return x == c })
	had := len(c.underWay) > 0
	l.mu.Unlock()
	if had {
		due := s.o.Now()
		if !forGood {
			due = due.Add(resumeWait)
		}
		s.orphans.add(c.Identity, due)
	}
}

// recover takes over what an orchestrator that has come back has in hand.
func (s *Service) recover(c *connected) {
	ctx, cancel := s.call()
	defer cancel()
	list, err := s.o.Rows.Tasks(ctx, store.TaskFilter{
		Holder: c.Identity, Launches: true, States: handedOut, Active: true,
	}, store.TaskPage{}, maxUnderWay)
	if err != nil {
		return // the deadline finds out
	}
	for _, t := range list {
		_, err := s.o.Tasks.Change(ctx, t.ID, func(t *store.Task) error {
			if t.Holder != c.Identity || !slices.Contains(handedOut, t.State) || t.HolderSession == c.Session {
				return task.ErrUnchanged
			}
			t.HolderSession, t.HolderGateway = c.Session, s.o.Presence.Self().ID
			return nil
		})
		if err == nil {
			s.starter.note(c, t.ID)
		}
	}
}

var (
	queuedOnly = []store.TaskState{store.TaskQueued}
	// handedOut are the states of a start that an orchestrator has.
	handedOut = []store.TaskState{store.TaskAssigned, store.TaskStarting}
)

func (l *starters) note(c *connected, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.gone {
		c.underWay[id] = true
	}
}

// settled takes a start off whoever has it in hand here.
func (l *starters) settled(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.list {
		if c.underWay[id] {
			delete(c.underWay, id)
			if len(c.underWay) == maxUnderWay-1 {
				l.signal()
			}
		}
	}
}

// choose returns the orchestrator that gets a start: the one that has least in
// hand, rather one that has not had it in vain. waits says that there is only
// such a one, and another one is waited for.
func (l *starters) choose(t *store.Task, profile string, now time.Time) (best *connected, waits bool) {
	missed := strings.Fields(t.Missed)
	patient := now.Sub(t.ChangedAt) < missedPause
	l.mu.Lock()
	defer l.mu.Unlock()
	bestMissed := false
	for _, c := range l.list {
		if !c.announces(profile) || !c.Covers(t.Workspace) || len(c.underWay) >= maxUnderWay {
			continue
		}
		m := slices.Contains(missed, c.Identity)
		if m && patient {
			waits = true
			continue
		}
		if best == nil || bestMissed && !m || m == bestMissed && len(c.underWay) < len(best.underWay) {
			best, bestMissed = c, m
		}
	}
	return best, waits && best == nil
}

// runStarts hands queued starts to orchestrators here.
func (s *Service) runStarts() {
	s.every(claimInterval, s.starter.wake, func() {
		for s.ctx.Err() == nil && s.handOut() {
		}
	})
}

// handOut looks at queued starts; it reports true if there may be more to do.
func (s *Service) handOut() (more bool) {
	if !s.Armed() {
		return false
	}
	if s.starter.empty() {
		s.tellOthers()
		return false
	}
	ctx, cancel := s.call()
	defer cancel()
	list, err := s.o.Rows.QueuedTasks(ctx, store.TaskFilter{Launches: true, States: queuedOnly}, claimPage)
	if err != nil {
		return false // the next tick
	}
	count, left := s.handOutThese(ctx, list)
	if count == 0 && len(list) == claimPage {
		// Starts that nobody here may have stand before those that somebody may.
		count, _ = s.handOutOthers(ctx)
		left = true
	}
	if left {
		s.tellOthers()
	}
	return count > 0 && len(list) == claimPage
}

// handOutOthers looks at the starts of those implementations that an orchestrator
// here can start.
func (s *Service) handOutOthers(ctx context.Context) (count int, left bool) {
	t := s.o.Registry.known.Load()
	for i := range t.list {
		e := &t.list[i]
		if !s.starter.any(e.Profile) {
			continue
		}
		f := store.TaskFilter{Launches: true, States: queuedOnly, Implementation: e.Name}
		if e.Workspace != "" {
			f.Workspaces = []string{e.Workspace}
		}
		list, err := s.o.Rows.QueuedTasks(ctx, f, claimPage)
		if err != nil {
			return count, left
		}
		n, l := s.handOutThese(ctx, list)
		count, left = count+n, left || l
	}
	return count, left
}

func (l *starters) any(profile string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.list, func(c *connected) bool { return c.announces(profile) && len(c.underWay) < maxUnderWay })
}

// handOutThese hands out what it can of a list, some at a time.
func (s *Service) handOutThese(ctx context.Context, list []store.Task) (count int, left bool) {
	var mu sync.Mutex
	var all sync.WaitGroup
	places := make(chan struct{}, lookers)
	for i := range list {
		t := &list[i]
		now := s.o.Now()
		if !t.DueAt.IsZero() && now.Before(t.DueAt) {
			continue // it waits for its next attempt
		}
		i, ok := s.o.Registry.Find(t.Implementation, t.Workspace)
		if !ok {
			continue // it was taken out of the registry, and waits
		}
		c, _ := s.starter.choose(t, i.Profile, now)
		if c == nil {
			left = true
			continue
		}
		s.starter.note(c, t.ID)
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			if s.handTo(ctx, c, t.ID, i) {
				mu.Lock()
				count++
				mu.Unlock()
			} else {
				s.starter.settled(t.ID)
			}
		})
	}
	all.Wait()
	return count, left
}

// handTo gives a start to an orchestrator, if nobody else was first.
func (s *Service) handTo(ctx context.Context, c *connected, id string, i *store.Implementation) bool {
	token, hash := auth.NewTaskToken()
	now := s.o.Now()
	t, err := s.o.Tasks.Change(ctx, id, func(t *store.Task) error {
		if t.State != store.TaskQueued || t.Launch == "" || !t.DueAt.IsZero() && now.Before(t.DueAt) {
			return errOver
		}
		if err := task.Move(t, task.Assign, "", now); err != nil {
			return err
		}
		t.AssignedTo, t.TokenHash, t.Profile = t.Launch, hash, i.Profile
		t.Holder, t.HolderSession, t.HolderGateway = c.Identity, c.Session, s.o.Presence.Self().ID
		t.DueAt = now.Add(s.o.StartDeadline)
		return nil
	})
	if err != nil {
		return false
	}
	var payload []byte
	if t.Mode != store.TaskStart {
		if payload, err = s.o.Rows.TaskPayload(ctx, id); err != nil {
			payload = nil // its worker asks again
		}
	}
	if !c.Assign(assignment(&t, i, token, payload)) {
		// It has gone with nothing: no attempt is spent.
		_, _ = s.o.Tasks.Change(ctx, id, func(t *store.Task) error {
			if t.TokenHash != hash {
				return errOver
			}
			return task.Move(t, task.Back, "its orchestrator has gone", s.o.Now())
		})
		return false
	}
	s.stats.Assigned.Add(1)
	s.o.Logger.Info("a start was assigned", "task", t.ID, "identity", t.Launch, "attempt", t.Attempt, "orchestrator", c.Identity)
	return true
}

// assignment is what an orchestrator is told. It holds the worker's secret.
func assignment(t *store.Task, i *store.Implementation, token string, payload []byte) *aetherv1.TaskAssignment {
	x := handed(t, payload)
	x.LaunchParams = params(t, i)
	x.LaunchParams[AuthToken] = token
	return x
}

// params are the launch parameters of a start: those of the registry, and what
// its creator has set otherwise.
func params(t *store.Task, i *store.Implementation) map[string]string {
	all := map[string]string{}
	if i != nil {
		maps.Copy(all, i.Params)
	}
	if spec, err := task.DecodeSpec(t.Spec); err == nil {
		maps.Copy(all, spec.Overrides)
	}
	delete(all, AuthToken)
	return all
}

// handed is what anybody is told who is handed a task.
func handed(t *store.Task, payload []byte) *aetherv1.TaskAssignment {
	x := &aetherv1.TaskAssignment{
		TaskId: t.ID, TaskType: t.Type, AssignedTo: t.AssignedTo, AssignedAt: t.ChangedAt.Unix(), Profile: t.Profile,
		TargetImplementation: t.Implementation, Workspace: t.Workspace, TaskClass: aetherv1.TaskClass(t.Class),
		Payload: payload,
	}
	if a, err := address.Parse(t.Target); err == nil {
		x.Specifier = a.Specifier()
	}
	if spec, err := task.DecodeSpec(t.Spec); err == nil {
		x.Metadata = spec.Metadata
	}
	return x
}

// tellOthers tells other gateways that starts wait that were queued here.
func (s *Service) tellOthers() {
	l := &s.starter
	now := time.Now()
	l.mu.Lock()
	tell := l.fresh && now.Sub(l.told) >= tellPause
	if tell {
		l.told, l.fresh = now, false
	}
	l.mu.Unlock()
	if tell {
		_ = s.o.Presence.Send("", kindQueued, nil) // they look by themselves, too
	}
}
