package task

import (
	"context"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// passTimeout bounds how long a change of a task waits for its grant to follow.
const passTimeout = 2 * time.Second

// passGrant has the grant of a task follow it: to who works on it from now on,
// before that one is told, who may use it at once; and to its end.
func (s *Service) passGrant(before, after *store.Task) {
	if after.Grant.GrantID == "" || s.grants() == nil {
		return
	}
	passed := false
	if !after.State.Over() {
		if after.AssignedTo == "" || after.AssignedTo == before.AssignedTo {
			return
		}
		ctx, cancel := context.WithTimeout(s.ctx, passTimeout)
		defer cancel()
		passed = s.grants().AssignTask(ctx, after.ID, after.AssignedTo) == nil
	}
	if !passed {
		s.chores.add(chore{kind: choreGrant, id: after.ID})
	}
}
