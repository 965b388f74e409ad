package task

import (
	"encoding/json"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
)

// kindChanged is the notice of a change, for other gateways.
const kindChanged = "task.changed"

// Event of a task, as gateways tell each other: lossy, so that who must not miss
// one also asks the store.
type change struct {
	ID        string          `json:"id"`
	Workspace string          `json:"ws"`
	Parent    string          `json:"parent,omitempty"`
	Root      string          `json:"root,omitempty"`
	From      store.TaskState `json:"from,omitempty"`
	To        store.TaskState `json:"to"`
	Attempt   int32           `json:"attempt"`
	Rev       int64           `json:"rev"`
	AtMS      int64           `json:"at"`
	Reason    string          `json:"reason,omitempty"`
}

// maxReason bounds the reason of a task, in bytes.
const maxReason = 1024

// publish tells this gateway's subscribers of a change, and other gateways.
func (s *Service) publish(before, after *store.Task) {
	c := change{
		ID: after.ID, Workspace: after.Workspace, Parent: after.ParentID, Root: after.RootID, To: after.State, Attempt: after.Attempt,
		Rev: after.Rev, AtMS: after.ChangedAt.UnixMilli(), Reason: after.Reason,
	}
	if before != nil {
		c.From = before.State
		if before.State == after.State && before.Attempt == after.Attempt {
			return
		}
	}
	s.subs.dispatch(&c)
	if list, certain := s.o.Presence.Instances(); certain && len(list) < 2 {
		return
	}
	// A lost one is made up for by a question to the store.
	_ = s.o.Presence.Send("", kindChanged, encode(c))
}

// heard takes the notice of another gateway.
func (s *Service) heard(n presence.Notice) {
	var c change
	if json.Unmarshal(n.Payload, &c) == nil && c.ID != "" {
		s.subs.dispatch(&c)
	}
}
