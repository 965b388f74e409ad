package grants

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/google/uuid"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Caller is who asks: a connected principal.
type Caller struct {
	// Principal is as it was when the request came; it does not change.
	Principal *acl.Principal
	Session   string
	Proof     *Proof
}

// newID draws an id that nobody guesses: who knows one may have been told it.
func newID() string { return "gr_" + uuid.NewString() }

// audience is to whom a grant is bound, and who may use it.
type audience struct {
	kind, id string
	delegate ref
}

// audienceOf finds out who an audience is. own is who is meant if none is named.
func (s *Service) audienceOf(ctx context.Context, c *Caller, a *asked, own ref) (audience, *wireerr.Error) {
	switch a.audienceType {
	case "":
		if a.audienceID != "" {
			return audience{}, bad("audience_id is named, and no audience_type")
		}
		return audience{delegate: own}, nil
	case audienceSession:
		return s.sessionAudience(ctx, c, a.audienceID)
	}
	if a.audienceID == "" {
		return audience{}, bad("audience_id is missing: it says which %.32s", a.audienceType)
	}
	r, err := parseRef("audience", a.audienceType, a.audienceID)
	if err != nil {
		return audience{}, err
	}
	return audience{a.audienceType, a.audienceID, r}, nil
}

// sessionAudience is a session; without an id, the caller's.
func (s *Service) sessionAudience(ctx context.Context, c *Caller, id string) (audience, *wireerr.Error) {
	if c != nil && (id == "" || id == c.Session) {
		return audience{audienceSession, c.Session, ref{c.Principal.Kind.String(), c.Principal.Name()}}, nil
	}
	if id == "" || len(id) > presence.MaxSessionID {
		return audience{}, bad("audience_id is not the id of a session")
	}
	at, err := s.o.Presence.Find(ctx, id)
	switch {
	case errors.Is(err, presence.ErrNotFound), errors.Is(err, presence.ErrInvalid), err == nil && (at.Ended || at.SessionID != id || len(at.Names) == 0):
		return audience{}, invalid("the audience is no session that is connected")
	case err != nil:
		return audience{}, unavailable(err)
	}
	r, refused := parseAny(at.Names[0])
	if refused != nil {
		return audience{}, invalid("the audience is no session that is connected")
	}
	return audience{audienceSession, id, r}, nil
}

// parseAny is the reference to an identity of whatever kind.
func parseAny(identity string) (ref, *wireerr.Error) {
	for kind, kinds := range refKinds {
		if len(kinds) == 1 {
			if r, err := parseRef("identity", kind, identity); err == nil && r.id == identity {
				return r, nil
			}
		}
	}
	return ref{}, bad("%.64q is no identity", identity)
}

// exchange makes a grant of the caller's own session, not stored yet.
func (s *Service) exchange(ctx context.Context, c *Caller, r *aetherv1.AuthorityGrantExchangeRequest) (store.Grant, *wireerr.Error) {
	if id := r.GetSourceSessionId(); id != "" && id != c.Session {
		// Whosever it is, and whether it exists, is not told.
		return store.Grant{}, wireerr.New(wireerr.PermissionDenied, "source_session_id is not the session that asks: only its own authority can be passed on")
	}
	a := exchangeAsked(r)
	if err := a.check(); err != nil {
		return store.Grant{}, err
	}
	own := refOf(c.Principal)
	to, err := s.audienceOf(ctx, c, a, own)
	if err != nil {
		return store.Grant{}, err
	}
	g, err := s.first(c.Principal, c.Proof, a, to)
	if err != nil {
		return store.Grant{}, err
	}
	return g, s.mayIssue(c.Principal, to.delegate, workspaceSet(g.Workspaces))
}

// first makes the first grant of a chain.
func (s *Service) first(subject *acl.Principal, proof *Proof, a *asked, to audience) (store.Grant, *wireerr.Error) {
	t, err := a.first(subject)
	if err != nil {
		return store.Grant{}, err
	}
	t.Proof = proof
	if subject.Kind == acl.User {
		if err := s.isMember(subject.Address.UserID(), t.Workspaces); err != nil {
			return store.Grant{}, err
		}
	}
	now := s.o.Now()
	expires, renewable, err := a.times(now, lifetime{s.o.Lifetime, s.o.MaxLifetime})
	if err != nil {
		return store.Grant{}, err
	}
	of := refOf(subject)
	g := store.Grant{
		ID: newID(), SubjectType: of.kind, SubjectID: of.id, IssuedBy: subject.Name(), ExpiresAt: expires, RenewableUntil: renewable, CreatedAt: now,
	}
	g.RootID = g.ID
	to.put(&g)
	return g, seal(&g, &t)
}

// isMember refuses workspaces in which a user is not.
func (s *Service) isMember(user string, workspaces []string) *wireerr.Error {
	for _, ws := range workspaces {
		if ws == everything {
			return bad("workspace_scope: a user's workspaces are named one by one")
		}
		if !s.o.Members.InWorkspace(user, ws) || s.o.Members.Barred(user, ws) {
			return invalid("workspace_scope: the user is no member of workspace %.128q", ws)
		}
	}
	return nil
}

func (to *audience) put(g *store.Grant) {
	g.AudienceType, g.AudienceID, g.DelegateType, g.DelegateID = to.kind, to.id, to.delegate.kind, to.delegate.id
}

// seal completes a grant with its terms.
func seal(g *store.Grant, t *terms) *wireerr.Error {
	g.Workspaces = nil
	for _, ws := range append(t.Workspaces, ref{g.SubjectType, g.SubjectID}.workspace(), ref{g.DelegateType, g.DelegateID}.workspace()) {
		if ws != "" && ws != everything && !contains(g.Workspaces, ws) {
			g.Workspaces = append(g.Workspaces, ws)
		}
	}
	g.Terms = t.encode()
	return nil
}

func contains(list []string, s string) bool {
	for _, x := range list {
		if x == s {
			return true
		}
	}
	return false
}

// mayIssue asks the rules: a denial of grant:issue towards the delegate forbids
// it; there is nothing that an allowance could open.
func (s *Service) mayIssue(p *acl.Principal, delegate ref, workspaces acl.WorkspaceSet) *wireerr.Error {
	at := delegate.at(workspaces)
	if at.IsZero() {
		at = p.Address
	}
	if d := acl.Permit(p, acl.ActionGrantIssue, at, acl.Decision{Allowed: true}, s.o.Rules); !d.Allowed {
		return wireerr.New(wireerr.PermissionDenied, "no grant may be issued to %.128q: %s", delegate.id, d.Reason)
	}
	return nil
}

// derive makes a grant that derives from one of which the caller is the delegate,
// not stored yet.
func (s *Service) derive(ctx context.Context, c *Caller, parentID string, a *asked, delegate *aetherv1.PrincipalRef) (store.Grant, *wireerr.Error) {
	if err := a.check(); err != nil {
		return store.Grant{}, err
	}
	parent, err := s.mine(ctx, c, parentID)
	if err != nil {
		return store.Grant{}, err
	}
	var to audience
	if delegate != nil {
		if to.delegate, err = parseRef("delegate", delegate.GetPrincipalType(), delegate.GetPrincipalId()); err != nil {
			return store.Grant{}, err
		}
	}
	if a.audienceType != "" || delegate == nil {
		at, err := s.audienceOf(ctx, c, a, ref{})
		switch {
		case err != nil:
			return store.Grant{}, err
		case at.delegate.kind == "":
			return store.Grant{}, bad("delegate is missing: it says who may use the grant")
		case delegate != nil && !at.delegate.same(to.delegate):
			return store.Grant{}, invalid("the audience is not the delegate")
		}
		if delegate != nil && at.kind != audienceSession {
			at.delegate = to.delegate // it may be the narrower one
		}
		to = at
	}
	if err := s.notInChain(parent, to.delegate); err != nil {
		return store.Grant{}, err
	}
	if err := s.mayIssue(c.Principal, to.delegate, parent.workspaces); err != nil {
		return store.Grant{}, err
	}
	return s.belowWith(parent, parent.terms.Hops, c.Principal.Name(), a, to)
}

// mine returns a grant that holds and of which the caller is the delegate.
func (s *Service) mine(ctx context.Context, c *Caller, id string) (*held, *wireerr.Error) {
	if id == "" || len(id) > maxID {
		return nil, errNoGrant()
	}
	h := s.find(id)
	if h == nil || !h.isFor(c.Principal, c.Session) {
		if away := s.Look(ctx); away != nil {
			return nil, unavailable(away)
		}
		if h = s.find(id); h == nil || !h.isFor(c.Principal, c.Session) {
			return nil, errNoGrant()
		}
	}
	return h, s.chain(h, nil)
}

// notInChain refuses to give a grant back to whom it comes from.
func (s *Service) notInChain(parent *held, delegate ref) *wireerr.Error {
	for g, depth := parent, 0; g != nil && depth <= MaxDepth; g, depth = s.find(g.ParentID), depth+1 {
		if delegate.same(ref{g.SubjectType, g.SubjectID}) || delegate.same(ref{g.DelegateType, g.DelegateID}) {
			return invalid("the grant would come back to %.128q, from whom it comes", delegate.id)
		}
	}
	return nil
}

// belowWith makes a grant that derives from another one, as if that had so many
// hops left.
func (s *Service) belowWith(parent *held, hops int32, by string, a *asked, to audience) (store.Grant, *wireerr.Error) {
	if parent.Depth >= MaxDepth {
		return store.Grant{}, invalid("the chain of grants is %d long already", parent.Depth)
	}
	now := s.o.Now()
	t, expires, renewable, err := a.below(parent, hops, now)
	if err != nil {
		return store.Grant{}, err
	}
	g := store.Grant{
		ID: newID(), RootID: parent.RootID, ParentID: parent.ID, Depth: parent.Depth + 1, SubjectType: parent.SubjectType, SubjectID: parent.SubjectID,
		IssuedBy: by, ExpiresAt: expires, RenewableUntil: renewable, CreatedAt: now,
	}
	to.put(&g)
	return g, seal(&g, &t)
}

// add stores new grants, all or none, and takes them over on this gateway.
func (s *Service) add(ctx context.Context, action string, list ...store.Grant) *wireerr.Error {
	if len(list) == 0 {
		return nil
	}
	err := s.o.Store.AddGrants(ctx, list, s.o.MaxPerSubject)
	switch {
	case errors.Is(err, store.ErrFull):
		return wireerr.New(wireerr.QuotaExceeded, "there are too many grants, in all or of this subject, which may have %d; revoke some", s.o.MaxPerSubject).After(time.Minute)
	case errors.Is(err, store.ErrNotFound):
		return invalid("the parent grant does not hold any more")
	case errors.Is(err, store.ErrText):
		return bad("a text is not valid UTF-8 or contains a zero byte")
	case err != nil:
		return s.away(err)
	}
	for i := range list {
		s.record(list[i].IssuedBy, action, &list[i])
	}
	_ = s.refresh(ctx) // else the feed does it
	return nil
}

// away is the error of a store that does not answer.
func (s *Service) away(err error) *wireerr.Error {
	s.o.Logger.Warn("the store did not answer a request about grants", "error", err)
	return wireerr.New(wireerr.Unavailable, "grants are not available at present").After(time.Second).Because(err)
}

// record puts what was done to a grant into the audit.
func (s *Service) record(by, action string, g *store.Grant) {
	s.o.Audit.Record(audit.Event{
		Kind: audit.Grant, Actor: by, Action: action, Target: g.ID, Outcome: audit.OK,
		Detail: strings.TrimSpace(g.SubjectID + " lets " + g.DelegateID + " act, until " + stamp(g.ExpiresAt)),
	})
}
