package task

import (
	"context"
	"errors"
	"strings"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Caller is who asks for something to be done: a session's principal as it is
// at that moment.
type Caller struct {
	Identity, Session string
	Principal         acl.Principal
	// Implementation is that of the principal; empty: it has none.
	Implementation string
	// Task is the task that the session's credential was made for, if it was one.
	Task string
	// Worker is the session as a worker; nil for one that is none.
	Worker *Worker
}

// role is what somebody has to do with a task.
type role uint8

const (
	creator role = 1 << iota
	assignee
	subject
	manager // by a rule
)

// seenBy are the identities as which a caller sees tasks: all windows of a user
// are one.
func (c *Caller) seenBy() []string {
	if c.Principal.Kind == acl.User {
		return []string{"us::" + c.Principal.Address.UserID() + "::"}
	}
	return []string{c.Identity}
}

// is reports whether an identity is the caller's.
func (c *Caller) is(identity string) bool {
	if identity == "" {
		return false
	}
	if c.Principal.Kind == acl.User {
		return strings.HasPrefix(identity, c.seenBy()[0])
	}
	return identity == c.Identity
}

// subjects are the types and ids under which a grant names the caller.
func (c *Caller) subjects() [][2]string {
	id := c.Identity
	types := []string{c.Principal.Kind.String()}
	switch c.Principal.Kind {
	case acl.User:
		return [][2]string{{"user", c.Principal.Address.UserID()}}
	case acl.UniqueTask, acl.Task:
		types = append(types, "task")
	}
	var all [][2]string
	for _, t := range types {
		all = append(all, [2]string{t, id})
	}
	return all
}

// inside reports whether a caller may have to do with tasks of a workspace.
func (c *Caller) inside(workspace string) bool { return acl.CoversWorkspace(&c.Principal, workspace) }

// roles are what the caller has to do with a task; none: it does not exist for
// it. A rule that denies task:manage takes them, one that allows it gives the
// manager's.
func (s *Service) roles(c *Caller, t *store.Task) role {
	var r role
	if c.inside(t.Workspace) {
		if c.is(t.Creator) {
			r |= creator
		}
		if c.is(t.AssignedTo) || c.is(t.Holder) && !t.State.Over() {
			r |= assignee
		}
		for _, x := range c.subjects() {
			if t.Grant.SubjectID != "" && t.Grant.SubjectType == x[0] && t.Grant.SubjectID == x[1] {
				r |= subject
			}
		}
	}
	at, ok := s.at(t)
	if !ok || s.o.Rules == nil {
		return r
	}
	// Which rule there is can only be seen from both sides.
	if !acl.Permit(&c.Principal, acl.ActionTaskManage, at, acl.Decision{Allowed: true}, s.o.Rules).Allowed {
		return 0
	}
	if acl.Permit(&c.Principal, acl.ActionTaskManage, at, acl.Decision{}, s.o.Rules).Allowed {
		r |= manager
	}
	return r
}

// at is the address by which rules name a task: that of the one who is to do it.
func (s *Service) at(t *store.Task) (address.Address, bool) {
	switch t.Mode {
	case store.TaskPool:
		a, err := address.TaskBroadcast(t.Workspace, t.Implementation)
		return a, err == nil
	case store.TaskSelf:
		return addressOf(cmpOr(t.AssignedTo, t.Creator))
	}
	return addressOf(t.Target)
}

// pooled is the address of a pool.
func pooled(t *store.Task) string {
	a, err := address.TaskBroadcast(t.Workspace, t.Implementation)
	if err != nil {
		return ""
	}
	return a.String()
}

func addressOf(text string) (address.Address, bool) {
	a, err := address.Parse(text)
	return a, err == nil
}

// noTask is the refusal of a task that does not exist, and of one that is none
// of the caller's business: the two are not to be told apart.
func noTask() *wireerr.Error { return wireerr.New(wireerr.NotFound, "there is no such task") }

const maxID = 128

// visible reads a task that the caller has to do with.
func (s *Service) visible(ctx context.Context, c *Caller, id string) (*store.Task, *wireerr.Error) {
	if id == "" {
		return nil, wireerr.New(wireerr.InvalidArgument, "task_id is empty")
	}
	if len(id) > maxID {
		return nil, noTask()
	}
	t, ok, err := s.o.Store.Task(ctx, id)
	switch {
	case errors.Is(err, store.ErrText):
		return nil, noTask()
	case err != nil:
		return nil, s.away(err)
	case !ok || s.roles(c, &t) == 0:
		return nil, noTask()
	}
	return &t, nil
}

// away is the refusal for a store that does not answer.
func (s *Service) away(err error) *wireerr.Error {
	if errors.Is(err, store.ErrText) {
		return wireerr.New(wireerr.InvalidArgument, "a text is not valid UTF-8 or has a zero byte")
	}
	if s.ctx.Err() == nil {
		s.o.Logger.Warn("tasks cannot be read or changed at present", "error", err)
	}
	return wireerr.New(wireerr.Unavailable, "tasks cannot be read or changed at present").After(retryAfter).Because(err)
}
