package session

import (
	"context"
	"errors"
	"slices"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/limits"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// place is the workspace that a session is in, and the era of it. It is read
// without a lock, and replaced while a frame is acted on.
type place struct {
	workspace string // empty: none
	era       uint32
}

const (
	// A user may change workspaces so often at once, and one more time after each
	// refill: each time other gateways may have to be asked.
	switchBurst  = 50
	switchRefill = 20 * time.Millisecond
	// switchTimeout bounds how long it may take to find out whether a user may
	// change. What the client has sent after it waits so long.
	switchTimeout = 5 * time.Second
	// switchFrame names the frame in the details of a refusal: it has no request
	// id.
	switchFrame = "switch_workspace"
)

// pace lets things happen a number of times at once, and once more after each
// refill. It is used by one goroutine; the zero value is full.
type pace struct {
	spent float64
	at    time.Time
}

func (p *pace) allow(now time.Time, burst int, refill time.Duration) bool {
	if passed := now.Sub(p.at); passed > 0 {
		p.spent = max(0, p.spent-passed.Seconds()/refill.Seconds())
	}
	p.at = now
	if p.spent+1 > float64(burst) {
		return false
	}
	p.spent++
	return true
}

// switchWorkspace takes a user into another workspace, or leaves all as it is
// (gateway.md 16). It is called by the receive loop: what the client sent before
// goes with the old workspace, and what it sends after that waits until it is
// known whether it goes with the new one. Whether the user may change is found
// out without the lock, so that the session can end meanwhile; the change itself
// needs nothing but memory. It reports false if the session has ended.
func (s *Session) switchWorkspace(f *aetherv1.SwitchWorkspace) bool {
	if s.over() {
		return false
	}
	to := f.GetNewWorkspaceId()
	moving, refusal := s.prepareSwitch(to)
	acted := s.act(func() {
		if refusal == nil {
			refusal = s.change(to, moving)
		}
		if refusal != nil {
			s.notSwitched(to, refusal)
		}
	})
	if !acted {
		moving.Cancel()
	}
	return acted
}

// prepareSwitch finds out whether the user may be in a workspace, and makes room
// for them there. There is nothing to make if they are there already.
func (s *Session) prepareSwitch(to string) (*limits.Moving, *wireerr.Error) {
	switch {
	case s.kind != acl.User:
		return nil, wireerr.New(wireerr.InvalidPrincipal, "only users change their workspace")
	case address.ValidWorkspace(to) != nil:
		return nil, wireerr.New(wireerr.InvalidArgument, "new_workspace_id: %v", address.ValidWorkspace(to))
	case !s.switches.allow(s.m.o.Now(), switchBurst, switchRefill):
		return nil, wireerr.New(wireerr.RateLimited, "too many changes of workspace").After(switchRefill)
	case !s.mayEnter(to):
		return nil, noMember(to)
	case to == s.place.Load().workspace:
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(s.st.Context(), switchTimeout)
	defer cancel()
	s.m.wg.Go(func() {
		select {
		case <-s.ended:
			cancel()
		case <-ctx.Done():
		}
	})
	err := s.m.o.Router.Spaces().Ensure(ctx, to, s.life.held.Load().credential.Subject)
	rest, resting := errors.AsType[*store.RestError](err)
	switch {
	case err == nil:
	case errors.Is(err, router.ErrNoWorkspace):
		return nil, noMember(to)
	case resting:
		return nil, failedSwitch("workspace %q was deleted a moment ago", to).After(rest.After)
	default:
		s.m.o.Logger.Warn("a workspace could not be created", "workspace", to, "error", err)
		return nil, failedSwitch("the workspace could not be created")
	}
	moving, err := s.account.Move(ctx, to)
	crowd, crowded := errors.AsType[*limits.SessionsError](err)
	switch {
	case crowded:
		return nil, failedSwitch("%s", crowd.Error()).After(crowdedRetry)
	case err != nil:
		return nil, failedSwitch("what others have left of the limits could not be asked")
	}
	return moving, nil
}

func failedSwitch(format string, args ...any) *wireerr.Error {
	return wireerr.New(wireerr.WorkspaceSwitchFailed, format, args...)
}

// noMember does not tell a workspace that does not exist from one that is not
// for the user.
func noMember(workspace string) *wireerr.Error {
	return wireerr.New(wireerr.PermissionDenied, "the user is no member of workspace %q, or there is none", workspace)
}

// mayEnter reports whether the session's user may be in a workspace.
func (s *Session) mayEnter(workspace string) bool {
	s.handling.Lock()
	covered := s.principal.Workspaces
	s.handling.Unlock()
	return s.m.o.Router.Members().MayEnter(s.claim.UserID, workspace, covered)
}

// change makes the change, unless what was found out holds no more. The lock
// handling is held.
func (s *Session) change(to string, moving *limits.Moving) *wireerr.Error {
	r := s.m.o.Router
	era, exists := r.Spaces().Check(to)
	if !exists || !r.Members().MayEnter(s.claim.UserID, to, s.principal.Workspaces) {
		moving.Cancel()
		return noMember(to)
	}
	if was := s.place.Load(); was.workspace == to && was.era == era {
		if s.extended {
			s.urgent(switchedFrame(to))
		}
		return nil
	}
	// From here on nothing can fail.
	from := s.principal.Workspace
	s.principal.Workspace = to
	reads := subscriptions(&s.principal, s.claim)
	s.hears = slices.Concat(reads.Exclusive, reads.Shared)
	var frame []byte
	if s.extended {
		frame = switchedFrame(to)
	}
	moving.Commit()
	if !s.sub.Move(to, reads.Shared, frame) {
		s.slow()
	}
	s.place.Store(&place{to, era})
	s.m.stats.Switched.Add(1)
	s.m.o.Audit.Record(audit.Event{
		Kind: audit.Connect, Actor: s.identity, Action: "switch", Target: to, Outcome: audit.OK, Detail: "from workspace " + from,
	})
	// Who was removed from there in between has been looked for in the old one.
	s.dismissed()
	return nil
}

// notSwitched refuses a change; the session goes on where it is.
func (s *Session) notSwitched(to string, err *wireerr.Error) {
	if err.Code != wireerr.InvalidArgument {
		err = err.With("workspace", to)
	}
	s.record("switch", to, err)
	s.urgent(router.ErrorFrame("", err.With("frame", switchFrame)))
}
