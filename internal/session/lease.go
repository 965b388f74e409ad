package session

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/router"
)

// leaseNames returns what a session must be alone with: its identity, and,
// for the workflow engine, the event addresses that it reads.
func leaseNames(p *acl.Principal, identity string) []string {
	names := []string{identity}
	if p.Kind == acl.WorkflowEngine {
		if p.Workspaces.IsAll() {
			return append(names, "event::*")
		}
		for _, ws := range p.Workspaces.Names() {
			names = append(names, "event::"+ws)
		}
	}
	return names
}

// claim takes the session's lease: a free one, or, with the id of the session
// that holds it or held it lately, that one's (delivery rules L4, L5).
func (m *Manager) claim(ctx context.Context, s *Session, resume string) (presence.Grant, error) {
	g, err := m.o.Presence.Claim(ctx, presence.Claim{SessionID: s.id, Names: leaseNames(&s.principal, s.identity), Resume: resume})
	switch {
	case err == nil:
		s.lease, s.resumed = g.Lease, g.Resumed
		s.unconfirmed.Store(g.Resumed)
		return g, nil
	case errors.Is(err, presence.ErrHeld):
		// Who holds it is not said: the id of a session is a secret of its client.
		return g, status.Errorf(codes.AlreadyExists, "DuplicateIdentityError: identity (%s) is connected already", s.identity)
	case errors.Is(err, presence.ErrInvalid):
		return g, status.Error(codes.InvalidArgument, "the identity cannot be leased: too many workspaces, or too long")
	}
	m.o.Logger.Warn("a lease could not be taken", "identity", s.identity, "error", err)
	return g, noLease(err)
}

// noLease is the status of a connection for which no lease can be had now.
func noLease(err error) error {
	var away *presence.UnavailableError
	after := time.Duration(0)
	if errors.As(err, &away) {
		after = away.RetryAfter
	}
	return unavailable(after, "leases on identities cannot be taken at present; connect again")
}

// unavailable is a status with a hint when to connect again: after some time,
// and up to half of it later, so that not all come at once.
func unavailable(after time.Duration, format string, args ...any) error {
	return hinted(codes.Unavailable, after, fmt.Sprintf(format, args...))
}

func hinted(code codes.Code, after time.Duration, text string) error {
	st := status.New(code, text)
	if after > 0 {
		after += rand.N(after/2 + 1)
		if with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(after)}); err == nil {
			st = with
		}
	}
	return st.Err()
}

// resumable returns the id of the session that a client wants to resume, empty
// for one that none can have.
func resumable(init *aetherv1.InitConnection) string {
	id := init.GetResumeSessionId()
	if len(id) > presence.MaxSessionID {
		return ""
	}
	return id
}

const releaseTimeout = 2 * time.Second

// release gives back what a session holds: its lease, and its place among the
// sessions that are counted.
func (m *Manager) release(s *Session) {
	s.account.Close()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.st.Context()), releaseTimeout)
	defer cancel()
	if err := m.o.Presence.Release(ctx, s.lease); err != nil {
		m.o.Logger.Warn("a lease could not be released", "identity", s.identity, "error", err)
	}
}

// assign gives a non-unique task its id: the one of its task token, that of the
// session it resumes, if that one's is a task of the same implementation, or a
// new one.
func (m *Manager) assign(ctx context.Context, s *Session, id auth.Identity, resume, own string) (auth.Identity, error) {
	var err error
	if id.Specifier = own; own == "" {
		if id.Specifier, err = m.taskID(ctx, id, resume); err != nil {
			return id, err
		}
	}
	a, err := address.Task(id.Workspace, id.Implementation, id.Specifier)
	if err != nil {
		return id, status.Error(codes.InvalidArgument, "the task's address would be too long")
	}
	s.principal.Address, s.assigned = a, id.Specifier
	return id, nil
}

func (m *Manager) taskID(ctx context.Context, id auth.Identity, resume string) (string, error) {
	if resume != "" {
		old, err := m.o.Presence.Find(ctx, resume)
		switch {
		case err == nil:
			a, err := address.Parse(old.Names[0])
			if err == nil && a.Prefix() == address.PrefixTask && a.Workspace() == id.Workspace && a.Implementation() == id.Implementation {
				return a.Specifier(), nil
			}
		case !errors.Is(err, presence.ErrNotFound) && !errors.Is(err, presence.ErrInvalid):
			// With a new id its mail would stay where nobody reads.
			m.o.Logger.Warn("a session to resume could not be looked up", "error", err)
			return "", noLease(err)
		}
	}
	u, err := uuid.NewV7()
	if err != nil {
		return "", status.Error(codes.Internal, "no id could be drawn")
	}
	return u.String(), nil
}

// takeoverTimeout is how long a session waits for another one of this gateway
// that has lost the same names and is about to end.
const takeoverTimeout = 3 * time.Second

// subscribe is [router.Router.Subscribe] that waits for such a session.
func (m *Manager) subscribe(ctx context.Context, s *Session, reads router.Reads) (*router.Subscription, error) {
	timeout := time.NewTimer(takeoverTimeout)
	defer timeout.Stop()
	for {
		sub, err := m.o.Router.Subscribe(ctx, s.box, reads)
		if !errors.Is(err, router.ErrTaken) {
			return sub, err
		}
		old := m.outgoing(s)
		if old == nil {
			return nil, err
		}
		select {
		case <-old.left:
		case <-timeout.C:
			return nil, err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// outgoing returns a session that has lost its lease and may read what s is to
// read.
func (m *Manager) outgoing(s *Session) *Session {
	for _, old := range m.all() {
		if old != s && old.kind == s.kind && old.lease.Lost() && (old.identity == s.identity || s.kind == acl.WorkflowEngine) {
			return old
		}
	}
	return nil
}

var _ presence.Handler = (*Manager)(nil)

// yieldReserve is how much of the time that a session that takes over waits is
// kept for the answer's way.
const yieldReserve = 50 * time.Millisecond

// Yield implements [presence.Handler]: the session's client is told that
// another connection has taken over, nothing more is delivered to it, and what
// it was done with is handed over (delivery rules S7, L4).
func (m *Manager) Yield(ctx context.Context, sessionID string) (watermark []byte, exact bool) {
	s := m.session(sessionID)
	if s == nil {
		return nil, false
	}
	m.stats.TakenOver.Add(1)
	s.supersede()
	enough := context.Background().Done()
	if deadline, ok := ctx.Deadline(); ok {
		early, cancel := context.WithDeadline(ctx, deadline.Add(-yieldReserve))
		defer cancel()
		enough = early.Done()
	}
	select {
	case <-s.left:
	case <-enough:
	case <-ctx.Done():
	}
	// What is known before the positions are committed is exact as well: the
	// new session stores it under its own epoch.
	if w := s.handOver.Load(); w != nil {
		return *w, *w != nil
	}
	return nil, false
}

// Lost implements [presence.Handler]: the session ends without any effect.
func (m *Manager) Lost(lease presence.Lease, why error) {
	s := m.session(lease.SessionID)
	if s == nil || s.lease.Epoch != lease.Epoch {
		return
	}
	if errors.Is(why, presence.ErrSuperseded) {
		m.stats.Superseded.Add(1)
		s.supersede()
	} else {
		m.stats.Fenced.Add(1)
		s.fenced()
	}
}

const superseded = "the session was resumed by another connection"

// supersede ends the session in favour of one that resumes it (delivery rule
// L5).
func (s *Session) supersede() {
	s.urgent(signalFrame(aetherv1.Signal_SIGNAL_TYPE_FORCE_DISCONNECT, superseded, "SUPERSEDED", 0))
	s.end(cause{err: status.Error(codes.Aborted, "SUPERSEDED: "+superseded), flush: true, hurry: true})
}

// fencedRetry is what a client of a gateway that has fenced itself is told to
// wait: others may have the identity soon, this gateway when it is back.
const fencedRetry = 500 * time.Millisecond

// fenced ends the session because the gateway could not renew its lease
// (delivery rule L2).
func (s *Session) fenced() {
	s.end(cause{err: unavailable(fencedRetry, "the gateway could not renew its leases; connect again"), flush: true, hurry: true})
}

// lost ends the session if its lease is lost, and reports whether it is. It is
// asked before each write (delivery rule L2).
func (s *Session) lost() bool {
	if !s.lease.Lost() {
		return false
	}
	// One that was taken over has been told so before; Lost says what else it
	// may be.
	if fence := s.lease.Hold.Fence(); fence.Fenced() {
		s.fenced()
	} else {
		s.supersede()
	}
	return true
}
