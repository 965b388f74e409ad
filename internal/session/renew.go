package session

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// renewals are a session's requests for a new credential. They are worked off
// one after the other beside the receive loop, because a key may have to be
// fetched and a membership stored. What waits and how often is bounded: what is
// beyond is refused, and the session goes on as it is.
type renewals struct {
	mu      sync.Mutex
	waiting []auth.Presented
	running bool
	tokens  float64 // how many may come at once
	at      time.Time
}

const (
	maxRenewals = 4 // that wait
	// renewalBurst may come at once, one more each second: more than any
	// lifetime of a credential asks for, and too few to guess with.
	renewalBurst   = 10
	renewalRefill  = time.Second
	renewalTimeout = 10 * time.Second
	// renewalFrame names the frame in the details of a refusal: it has no request
	// id.
	renewalFrame = "reauthenticate"
)

// allow takes one of those that may come now.
func (r *renewals) allow(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at.IsZero() {
		r.tokens = renewalBurst
	} else if passed := now.Sub(r.at); passed > 0 {
		r.tokens = min(renewalBurst, r.tokens+passed.Seconds()/renewalRefill.Seconds())
	}
	r.at = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	return true
}

// put queues a request; ok is false if too many wait. start tells the caller to
// work them off.
func (r *renewals) put(p auth.Presented) (start, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) >= maxRenewals {
		return false, false
	}
	r.waiting = append(r.waiting, p)
	start = !r.running
	r.running = true
	return start, true
}

// next returns the oldest request; ok is false if there is none, and then the
// next one is to be started anew.
func (r *renewals) next() (p auth.Presented, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.waiting, r.running = nil, false
		return p, false
	}
	p, r.waiting = r.waiting[0], r.waiting[1:]
	return p, true
}

// reauthenticate takes a new credential for the session, which goes on with the
// old one until the new one has been found good. The answer comes later.
func (s *Session) reauthenticate(f *aetherv1.Reauthenticate) {
	if !s.renewals.allow(s.m.o.Now()) {
		s.tooManyRenewals()
		return
	}
	presented, err := auth.FromMetadataAndInit(nil, f.GetCredentials())
	if err == nil && len(presented.Token()) > auth.MaxToken {
		err = auth.ErrTokenTooLarge
	}
	if err != nil {
		s.notRenewed(err)
		return
	}
	start, ok := s.renewals.put(presented)
	switch {
	case !ok:
		s.tooManyRenewals()
	case start:
		s.m.wg.Go(func() { s.guard(s.renew) })
	}
}

// tooManyRenewals costs no line in the log: a client could fill it.
func (s *Session) tooManyRenewals() {
	s.m.stats.ReauthenticationsRefused.Add(1)
	s.refuse("", wireerr.New(wireerr.RateLimited, "too many requests for a new credential").After(renewalRefill).With("frame", renewalFrame))
}

// renew works off what waits.
func (s *Session) renew() {
	for {
		presented, ok := s.renewals.next()
		if !ok {
			return
		}
		if err := s.renewWith(presented); err != nil {
			s.notRenewed(err)
		}
	}
}

func (s *Session) renewWith(presented auth.Presented) error {
	ctx, cancel := context.WithTimeout(s.st.Context(), renewalTimeout)
	defer cancel()
	claim := s.claim
	if s.kind == acl.User {
		claim.Workspace = "" // where the user is by now, adopt knows
	}
	principal, credential, err := s.m.authenticate(ctx, presented, claim)
	if err != nil {
		return err
	}
	now := s.m.o.Now()
	h := hold(credential, now)
	if now.UnixNano() >= h.expires {
		return auth.ErrExpired // the leeway is for connecting
	}
	if s.kind == acl.WorkflowEngine && !sameScope(s.principal.Workspaces, principal.Workspaces) {
		// Its leases are on the event addresses of these workspaces.
		return wireerr.New(wireerr.PermissionDenied, "the credential is for other workspaces; a workflow engine connects anew to change them")
	}
	s.handling.Lock()
	err = s.stays(&principal)
	s.handling.Unlock()
	if err != nil {
		return err
	}
	if err := s.m.learn(ctx, &principal, s.claim, credential.ExpiresAt); err != nil {
		return wireerr.New(wireerr.Unavailable, "the membership could not be stored").After(time.Second)
	}
	return s.adopt(h, &principal)
}

// stays returns an error for a credential that does not cover the workspace in
// which the session is, unless an operator has put the user there. Frames are
// not handled meanwhile.
func (s *Session) stays(p *acl.Principal) error {
	ws := s.principal.Workspace
	byRuling := s.kind == acl.User && s.m.o.Router.Members().PutIn(s.claim.UserID, ws)
	if ws != "" && !p.Workspaces.Covers(ws) && !byRuling {
		return fmt.Errorf("%w: not in workspace %q", auth.ErrNotCovered, ws)
	}
	return nil
}

// adopt puts the session on a new credential: from the next frame on, what it
// covers counts.
func (s *Session) adopt(h *holding, p *acl.Principal) error {
	s.handling.Lock()
	defer s.handling.Unlock()
	if s.expired(s.m.o.Now()) {
		return nil // too late; the stream ends with the reason
	}
	if err := s.stays(p); err != nil {
		return err
	}
	s.principal.Workspaces = p.Workspaces
	s.life.held.Store(h)
	// Who revoked it meanwhile has looked at the old one.
	if s.isRevoked() {
		return nil
	}
	s.m.stats.Reauthenticated.Add(1)
	s.m.o.Logger.Info("reauthenticated", "identity", s.identity, "session", s.id, "credential", h.credential.String())
	if s.extended {
		s.urgent(reauthenticatedFrame(h.expiresAtMs()))
	}
	s.watchLife()
	return nil
}

func sameScope(a, b acl.WorkspaceSet) bool {
	return a.IsAll() == b.IsAll() && slices.Equal(a.Names(), b.Names())
}

// notRenewed refuses a new credential; the session goes on with the old one.
func (s *Session) notRenewed(err error) {
	s.m.stats.ReauthenticationsRefused.Add(1)
	refusal := renewalRefusal(err)
	s.record("reauthenticate", s.id, refusal)
	s.m.o.Logger.Warn("a new credential was refused", "identity", s.identity, "session", s.id, "code", refusal.Code, "reason", refusal.Message)
	s.refuse("", refusal.With("frame", renewalFrame))
}

// renewalRefusal is the error that the client is told.
func renewalRefusal(err error) *wireerr.Error {
	if e, ok := errors.AsType[*wireerr.Error](err); ok {
		return e
	}
	var code wireerr.Code
	switch auth.Code(err) {
	case codes.Unauthenticated:
		code = wireerr.Unauthenticated
	case codes.PermissionDenied:
		code = wireerr.PermissionDenied
	case codes.InvalidArgument:
		code = wireerr.InvalidArgument
	case codes.ResourceExhausted:
		code = wireerr.RateLimited
	case codes.Unavailable:
		code = wireerr.Unavailable
	default:
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return wireerr.New(wireerr.Unavailable, "the credential could not be checked in time").After(time.Second)
		}
		return wireerr.From(err)
	}
	return wireerr.New(code, "%s", err.Error())
}
