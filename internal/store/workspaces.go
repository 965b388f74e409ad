package store

import (
	"context"
	"fmt"
	"time"
)

// Workspace is one that exists, or that has been deleted.
type Workspace struct {
	Name string
	// Era is how often the name was created anew. What was sent to a workspace
	// of an earlier era is nothing for those who are in it now.
	Era uint32
	// CreatedAt is to the millisecond, of this era; CreatedBy whoever asked for
	// it.
	CreatedAt time.Time
	CreatedBy string
	// DeletedAt is zero for a workspace that exists.
	DeletedAt time.Time
}

// Exists reports whether the workspace has not been deleted.
func (w Workspace) Exists() bool { return w.DeletedAt.IsZero() }

// WorkspaceRest is how long the name of a deleted workspace rests before it can
// be used again: by then every gateway that reaches the database has heard of
// the deletion and has ended its sessions.
const WorkspaceRest = 10 * time.Second

// RestError refuses to create a workspace that was deleted a moment ago.
type RestError struct {
	Name string
	// After is when to try again.
	After time.Duration
}

func (e *RestError) Error() string {
	return fmt.Sprintf("store: workspace %q was deleted a moment ago, its name can be used again in %v", e.Name, e.After)
}

// Workspaces keeps which workspaces there are. Implementations are safe for
// concurrent use, also by several gateways; a method that returned nil has made
// its change durable, and one that failed can be repeated. [ErrText] refuses a
// text.
type Workspaces interface {
	// CreateWorkspace creates a workspace and returns it, or the one that
	// exists, which is no error and changes nothing. [RestError] refuses a name
	// that has to rest.
	CreateWorkspace(ctx context.Context, name, by string) (w Workspace, created bool, err error)
	// DeleteWorkspace deletes a workspace, and with it who is a member, by
	// whatever reason, the rules that name it in an address or a principal, and
	// the grants that name it. deleted is false if there is none. What else is kept of
	// it goes with [Workspaces.PurgeWorkspaces].
	DeleteWorkspace(ctx context.Context, name string) (deleted bool, err error)
	// Workspaces returns those that exist, by name.
	Workspaces(ctx context.Context) ([]Workspace, error)
	// WorkspaceChanges returns up to limit workspaces that changed after the
	// cursor, deleted ones too, as [Members.MembershipChanges] does.
	WorkspaceChanges(ctx context.Context, after Cursor, limit int) ([]Workspace, Cursor, error)
	// PurgeWorkspaces removes positions, notes and marks of the addresses of
	// deleted workspaces, and their keys, and returns how many rows. A workspace is looked at
	// again until its name has rested: gateways that have not heard of the
	// deletion may write some more.
	PurgeWorkspaces(ctx context.Context) (int64, error)
	// ExpireWorkspaces forgets workspaces that were deleted before the time,
	// and returns how many. Nothing that was sent to them may be left.
	ExpireWorkspaces(ctx context.Context, before time.Time) (int64, error)
	// MembershipsIn returns up to limit memberships of a workspace behind a
	// user, by user, as [Members.MembershipsOf] does of a user.
	MembershipsIn(ctx context.Context, workspace, after string, limit int) ([]Membership, error)
}
