package router

import (
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/envelope"
)

// voidAt returns what tells of a message at an address whether it is nothing
// for its reader any more: it was sent to a workspace that has been deleted
// since, also if that was created anew, or, to a user's window, from a workspace
// that the user was removed from. It answers from memory and takes none of the
// router's locks. nil says that nothing at the address ever is.
func (r *Router) voidAt(topic string) func(*envelope.View) bool {
	if r.spaces.store == nil && r.members.store == nil {
		return nil
	}
	if topic == anyEvent {
		return func(v *envelope.View) bool { return r.spaces.over(v.Topic[len(eventPrefix):], v.Era) }
	}
	to, err := address.Parse(topic)
	if err != nil {
		return nil
	}
	if to.Prefix() == address.PrefixUser {
		user := to.UserID()
		return func(v *envelope.View) bool {
			return len(v.Workspace) > 0 && (r.spaces.over(v.Workspace, v.Era) || r.members.out(user, v.Workspace))
		}
	}
	if to.Workspace() == "" {
		return nil
	}
	workspace := []byte(to.Workspace())
	return func(v *envelope.View) bool { return r.spaces.over(workspace, v.Era) }
}
