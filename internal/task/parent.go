package task

import (
	"context"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/store"
)

// workedOn is the task in which a caller works: that of its credential, or else
// the one that a task is assigned, if it is exactly one. Agents and others do
// much beside a task.
func (s *Service) workedOn(ctx context.Context, c *Caller) (string, error) {
	if c.Task != "" || c.Principal.Kind != acl.Task && c.Principal.Kind != acl.UniqueTask {
		return c.Task, nil
	}
	all, err := s.o.Store.ActiveTasksOf(ctx, []string{c.Identity}, maxHanded)
	if err != nil || len(all) == maxHanded {
		return "", err
	}
	found := ""
	for i := range all {
		switch t := &all[i]; {
		case t.AssignedTo != c.Identity || t.State == store.TaskQueued:
		case found != "":
			return "", nil
		default:
			found = t.ID
		}
	}
	return found, nil
}
