package grants

import (
	"context"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Task is a task that somebody creates in another's name.
type Task struct {
	ID, Workspace string
	// To is the address of who is to do it, or of the workers of whom one is;
	// zero: who creates it.
	To address.Address
	// Delegate is the identity of who is to do it; empty: not known yet.
	Delegate string
}

// ForTask decides whether a task may be created under an authorization, and makes
// the grant that it carries: derived, for whoever does the task, until it ends.
// The grant is stored before the task is; [Service.EndTask] takes it back if the
// task comes to nothing. Zero is returned for a task that its creator makes for
// itself.
func (s *Service) ForTask(ctx context.Context, c *Caller, under *aetherv1.AuthorizationContext, t Task) (store.TaskGrant, *wireerr.Error) {
	named, err := Names(c.Principal, under)
	if err != nil || !named {
		return store.TaskGrant{}, err
	}
	h, err := s.useSure(ctx, &Use{
		Actor: c.Principal, Session: c.Session, Under: under, Operation: OperationTaskCreate, Level: LevelWrite, Workspace: t.Workspace, To: t.To,
	})
	if err != nil {
		return store.TaskGrant{}, err
	}
	if p := h.as(t.Workspace); !t.To.IsZero() && t.To.String() != c.Principal.Name() {
		if d := s.o.Decide(p, t.To); !d.Allowed {
			return store.TaskGrant{}, invalid("the subject of the grant may not do that: %s", d.Message(p, t.To))
		}
	}
	g, err := s.forTask(h, c, t)
	if err != nil {
		return store.TaskGrant{}, err
	}
	if err := s.add(ctx, "grant derive", g); err != nil {
		return store.TaskGrant{}, err
	}
	return store.TaskGrant{
		Mode: under.GetAuthorityMode(), SubjectType: g.SubjectType, SubjectID: g.SubjectID, RootSubjectType: g.SubjectType, RootSubjectID: g.SubjectID,
		GrantID: g.ID, RootGrantID: g.RootID, ParentGrantID: g.ParentID,
	}, nil
}

// forTask derives the grant of a task. Who does the task itself passes nothing
// on.
func (s *Service) forTask(parent *held, c *Caller, t Task) (store.Grant, *wireerr.Error) {
	to := audience{kind: audienceTask, id: t.ID}
	if t.Delegate != "" {
		r, err := parseAny(t.Delegate)
		if err != nil {
			return store.Grant{}, err
		}
		to.delegate = r
	}
	a := &asked{workspaces: []string{t.Workspace}, whileActive: true}
	if t.Delegate == c.Principal.Name() {
		return s.belowWith(parent, max(parent.terms.Hops, 1), c.Principal.Name(), a, to)
	}
	return s.belowWith(parent, parent.terms.Hops, c.Principal.Name(), a, to)
}

// AssignTask gives the grant of a task to who does it from now on.
func (s *Service) AssignTask(ctx context.Context, taskID, identity string) error {
	r, refused := parseAny(identity)
	if refused != nil {
		return refused
	}
	if _, err := s.o.Store.DelegateGrants(ctx, audienceTask, taskID, r.kind, r.id); err != nil {
		return err
	}
	_ = s.refresh(ctx) // else the feed does it
	return nil
}

// EndTask ends the grant of a task, and what derives from it.
func (s *Service) EndTask(ctx context.Context, taskID string) error {
	if _, err := s.o.Store.RevokeGrantsOf(ctx, audienceTask, taskID, "", "its task has ended"); err != nil {
		return err
	}
	_ = s.refresh(ctx) // else the feed does it
	return nil
}

const (
	// sweptTasks is how many tasks are looked at in one sweep, any of those that
	// carry grants; settledTask how old a grant is by then: its task may be being
	// stored.
	sweptTasks  = 100
	settledTask = time.Minute
)

// sweepTasks ends grants of tasks whose end nobody has told.
func (s *Service) sweepTasks() {
	if s.o.TaskOver == nil {
		return
	}
	now := s.o.Now()
	tasks := map[string]struct{}{}
	s.book.mu.RLock()
	for _, h := range s.book.grants { // in any order
		if h.ofTask() && h.terms.WhileActive && h.ended(now) == "" && now.Sub(h.CreatedAt) > settledTask {
			if tasks[h.AudienceID] = struct{}{}; len(tasks) == sweptTasks {
				break
			}
		}
	}
	s.book.mu.RUnlock()
	for id := range tasks {
		s.bounded(func(ctx context.Context) {
			if over, err := s.o.TaskOver(ctx, id); err == nil && over {
				_ = s.EndTask(ctx, id) // else the next sweep does it
			}
		})
	}
}

// May decides whether something else than a message may be done under an
// authorization, and returns the subject in the workspace, nil if the actor acts
// for itself. What the subject may do there is the caller's to decide, as it is
// for the actor.
func (s *Service) May(ctx context.Context, u *Use) (*acl.Principal, *wireerr.Error) {
	named, err := Names(u.Actor, u.Under)
	if err != nil || !named {
		return nil, err
	}
	h, err := s.useSure(ctx, u)
	if err != nil {
		return nil, err
	}
	return h.as(u.Workspace), nil
}
