package router

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/store"
)

// Loss is a right that was taken away while it may be in use.
type Loss struct {
	// User is who was removed from the workspace; "" says that the workspace
	// itself is gone.
	User, Workspace string
}

// OnLoss has f told of each loss that this gateway hears of. f must not wait.
// It is called before sessions are made, and not for what was lost before the
// router knew.
func (r *Router) OnLoss(f func(Loss)) {
	r.mu.Lock()
	r.onLoss = f
	r.mu.Unlock()
}

func (r *Router) loss(l Loss) {
	r.mu.Lock()
	f := r.onLoss
	r.mu.Unlock()
	if f != nil {
		f(l)
	}
}

// ErrNotKept is returned to operators by a gateway that keeps no workspaces or
// members.
var ErrNotKept = errors.New("router: this gateway has no store for workspaces and members")

// ErrNoMember says that nothing is known of a user in a workspace.
var ErrNoMember = errors.New("router: the user is not known in the workspace")

// CreateWorkspace creates a workspace, for an operator who is named by. created
// is false if it exists. The errors are those of [address.ValidWorkspace] and
// of the store.
func (r *Router) CreateWorkspace(ctx context.Context, name, by string) (w store.Workspace, created bool, err error) {
	if r.spaces.store == nil {
		return w, false, ErrNotKept
	}
	if err := address.ValidWorkspace(name); err != nil {
		return w, false, err
	}
	w, created, err = r.spaces.store.CreateWorkspace(ctx, name, by)
	if err == nil {
		r.spaces.learn(w)
	}
	return w, created, err
}

// WorkspaceExists reports whether a workspace exists, as far as this gateway
// knows, or would as soon as somebody names it.
func (r *Router) WorkspaceExists(name string) bool {
	_, exists := r.spaces.Check(name)
	return exists
}

// DeleteWorkspace deletes a workspace: at once nobody connects into it or sends
// to it, its sessions end, and who is a member is forgotten, on every gateway
// within 2 s. Positions, notes and marks of its addresses are removed in the
// background. What was sent to it stays in the log until retention removes it,
// and is delivered to nobody. It returns [ErrNoWorkspace] if there is none.
func (r *Router) DeleteWorkspace(ctx context.Context, name string) error {
	if r.spaces.store == nil {
		return ErrNotKept
	}
	deleted, err := r.spaces.store.DeleteWorkspace(ctx, name)
	switch {
	case err != nil:
		return err
	case !deleted:
		return fmt.Errorf("%w: %q", ErrNoWorkspace, name)
	}
	r.spawn(r.purge)
	return nil
}

// Workspaces lists those that exist, by name.
func (r *Router) Workspaces(ctx context.Context) ([]store.Workspace, error) {
	if r.spaces.store == nil {
		return nil, ErrNotKept
	}
	return r.spaces.store.Workspaces(ctx)
}

// RuleMember records what an operator decides about a user in a workspace that
// exists: [store.RuledIn] makes them a member, [store.RuledOut] removes them,
// against whatever their tokens say, and ends their sessions in it on every
// gateway within 2 s; [store.Unruled] leaves it to their tokens again, or returns
// [ErrNoMember].
func (r *Router) RuleMember(ctx context.Context, workspace, user string, ruling store.Ruling) error {
	if r.members.store == nil {
		return ErrNotKept
	}
	if err := address.ValidWorkspace(workspace); err != nil {
		return err
	}
	if err := address.ValidSegment(user); err != nil {
		return err
	}
	if _, exists := r.spaces.Check(workspace); !exists {
		return fmt.Errorf("%w: %q", ErrNoWorkspace, workspace)
	}
	if ruling == store.Unruled { // of nobody it would make a row that says nothing
		known, err := r.members.store.MembershipsOf(ctx, user)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(known, func(m store.Membership) bool { return m.Workspace == workspace }) {
			return ErrNoMember
		}
	}
	err := r.members.store.RuleMembership(ctx, user, workspace, ruling)
	if errors.Is(err, store.ErrNotFound) { // deleted a moment ago
		return fmt.Errorf("%w: %q", ErrNoWorkspace, workspace)
	}
	return err
}

// MembersIn lists up to limit memberships of a workspace behind a user, by
// user: by token and by ruling, those that have expired and those that are
// ruled out as well.
func (r *Router) MembersIn(ctx context.Context, workspace, after string, limit int) ([]store.Membership, error) {
	if r.spaces.store == nil {
		return nil, ErrNotKept
	}
	if _, exists := r.spaces.Check(workspace); !exists {
		return nil, fmt.Errorf("%w: %q", ErrNoWorkspace, workspace)
	}
	return r.spaces.store.MembershipsIn(ctx, workspace, after, limit)
}

// purge removes what the store keeps of deleted workspaces. What it does not
// get to is left to the next round.
func (r *Router) purge(ctx context.Context) {
	if r.spaces.store == nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, upkeepInterval)
	defer cancel()
	n, err := r.spaces.store.PurgeWorkspaces(bounded)
	if err != nil && ctx.Err() == nil {
		r.log.Warn("what is kept of deleted workspaces could not be removed; it is tried again in a minute", "error", err)
	}
	if n > 0 {
		r.log.Info("what was kept of deleted workspaces was removed", "rows", n)
	}
}
