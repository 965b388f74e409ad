package grants

import (
	"context"
	"unicode/utf8"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/mirror"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Use is something that is done in another's name.
type Use struct {
	// Actor does it, in a session; what it may do itself has been decided.
	Actor   *acl.Principal
	Session string
	// Under is what the actor's request says of it.
	Under *aetherv1.AuthorizationContext
	// Operation is what is done, such as "send", and Level what it takes.
	Operation string
	Level     int32
	// Workspace is where; empty: in none. To is the address that it concerns;
	// zero: none.
	Workspace string
	To        address.Address
}

const (
	maxMode     = 64                                 // bytes of an authority_mode, and of a type
	maxIdentity = 2 * address.MaxRunes * utf8.UTFMax // bytes of an identity; no principal has so many
)

// Direct is the authority mode of who acts for itself.
const Direct = "direct"

// Names reports whether a request is made in another's name, and so has to be
// covered by a grant. What cannot be understood is refused: acting for another
// must never be taken for acting for oneself.
func Names(actor *acl.Principal, a *aetherv1.AuthorizationContext) (bool, *wireerr.Error) {
	if a == nil {
		return false, nil
	}
	mode, sub := a.GetAuthorityMode(), a.GetSubject()
	switch {
	case len(mode) > maxMode:
		return false, bad("authority_mode has more than %d bytes", maxMode)
	case len(sub.GetPrincipalType()) > maxMode || len(sub.GetPrincipalId()) > maxIdentity:
		return false, bad("the subject is no principal: it is too long")
	case len(a.GetGrantId()) > maxID:
		return false, errNoGrant()
	case a.GetGrantId() != "" && mode == Direct:
		return false, bad("authority_mode is direct, and a grant is named")
	case a.GetGrantId() != "":
		return true, nil
	case sub != nil && !isRef(sub.GetPrincipalType(), sub.GetPrincipalId(), actor):
		return false, invalid("the request is made for another, and names no grant")
	case sub == nil && mode != "" && mode != Direct:
		return false, invalid("authority_mode is %.64q, and no grant is named", mode)
	}
	return false, nil
}

// errNoGrant says the same of what does not exist and of what is not the
// asker's.
func errNoGrant() *wireerr.Error { return invalid("there is no such grant") }

// Authorize decides on a message, from memory. onBehalf is the subject, an
// encoded PrincipalRef that is not to be changed; nil if the sender acts for
// itself. An error with unknown set may be one only because the copy is not up
// to date: see [Service.Look].
func (s *Service) Authorize(p *acl.Principal, session string, a *aetherv1.AuthorizationContext, to address.Address, workspace string) (onBehalf []byte, unknown bool, err *wireerr.Error) {
	named, err := Names(p, a)
	if err != nil || !named {
		return nil, false, err
	}
	u := Use{Actor: p, Session: session, Under: a, Operation: acl.ActionSend.String(), Level: LevelWrite, Workspace: workspace, To: to}
	h, unknown, err := s.use(&u)
	if err != nil {
		return nil, unknown, err
	}
	return h.onBehalf, false, nil
}

// use finds the grant of a use and decides whether it covers it, from memory.
func (s *Service) use(u *Use) (h *held, unknown bool, err *wireerr.Error) {
	h = s.find(u.Under.GetGrantId())
	if h == nil || !h.isFor(u.Actor, u.Session) {
		return nil, true, errNoGrant()
	}
	if sub := u.Under.GetSubject(); sub != nil && !h.isSubject(sub) {
		return nil, false, invalid("the subject that the request names is not the grant's")
	}
	if err := s.chain(h, u); err != nil {
		return nil, false, err
	}
	return h, false, s.subjectMay(h, u)
}

// useSure is use that looks into the store if it must. It is for what is not on
// the way of messages.
func (s *Service) useSure(ctx context.Context, u *Use) (*held, *wireerr.Error) {
	h, unknown, err := s.use(u)
	if err == nil || !unknown {
		return h, err
	}
	if away := s.Look(ctx); away != nil {
		return nil, unavailable(away)
	}
	h, _, err = s.use(u)
	return h, err
}

func unavailable(cause error) *wireerr.Error {
	return wireerr.New(wireerr.Unavailable, "grants cannot be looked up at present").After(mirror.LookTimeout).Because(cause)
}

func (h *held) isSubject(r *aetherv1.PrincipalRef) bool {
	got, err := parseRef("subject", r.GetPrincipalType(), r.GetPrincipalId())
	return err == nil && got.same(ref{h.SubjectType, h.SubjectID})
}

// chain checks a grant and all from which it derives: each must hold and cover
// the use. A nil use asks only whether they hold.
func (s *Service) chain(h *held, u *Use) *wireerr.Error {
	now := s.o.Now()
	for depth, g := 0, h; ; depth++ {
		if why := g.ended(now); why != "" {
			if g != h {
				why += ", of which this one derives"
			}
			return invalid("%s", why)
		}
		if g != h && g.terms.WhileActive && !s.active(g) {
			return invalid("the grant derives from one whose audience is not connected")
		}
		if u != nil {
			if err := g.covers(u); err != nil {
				return err
			}
		}
		if g.ParentID == "" {
			return nil
		}
		parent := s.find(g.ParentID)
		if parent == nil || depth >= MaxDepth {
			return invalid("the grant derives from one that is gone")
		}
		g = parent
	}
}

// active reports whether the audience of a grant is there, as far as is known:
// who uses a grant itself is, by that. Tasks end their grants themselves.
func (s *Service) active(h *held) bool {
	if h.ofTask() {
		return true
	}
	name := h.DelegateID
	if h.DelegateType == acl.User.String() && h.AudienceType != audienceSession {
		return true // which of the windows is not said
	}
	connected, _ := s.o.Presence.Held(name)
	return connected
}

// covers refuses what the terms do not allow.
func (h *held) covers(u *Use) *wireerr.Error {
	switch {
	case h.operations&operation(u.Operation) == 0:
		return invalid("the grant is not for %s", u.Operation)
	case h.terms.Level < u.Level:
		return invalid("the grant is for access level %d, %d is needed", h.terms.Level, u.Level)
	case u.Workspace != "" && !h.workspaces.Covers(u.Workspace):
		return invalid("the grant does not cover workspace %.128q", u.Workspace)
	case u.To.Workspace() != "" && !h.workspaces.Covers(u.To.Workspace()):
		return invalid("the grant does not cover workspace %.128q", u.To.Workspace())
	case u.Workspace == "" && u.To.Workspace() == "" && !h.workspaces.IsAll():
		return invalid("the grant is for certain workspaces, and the request is in none")
	case u.To.IsZero() && h.patterns != nil:
		return invalid("the grant is for certain addresses, and the request concerns none")
	case !u.To.IsZero() && !h.takes(u.To.String()):
		return invalid("the grant does not cover the address")
	}
	return nil
}

// subjectMay refuses what the subject may not do itself.
func (s *Service) subjectMay(h *held, u *Use) *wireerr.Error {
	p := h.as(u.Workspace)
	if err := s.subjectIsIn(p, u.Workspace); err != nil {
		return err
	}
	if u.Operation != acl.ActionSend.String() {
		return nil // who does it decides on the subject as it does on the actor
	}
	if d := s.o.Decide(p, u.To); !d.Allowed {
		return invalid("the subject of the grant may not do that: %s", d.Message(p, u.To))
	}
	if u.To.Prefix() == address.PrefixMetric && u.To.Workspace() == "" && u.Workspace != "" {
		if d := acl.DecideMetrics(p, u.Workspace, s.o.Rules); !d.Allowed {
			return invalid("the subject of the grant may not do that: %s", d.Message(p, u.To))
		}
	}
	return nil
}

// subjectIsIn refuses a workspace that the subject does not reach at present.
func (s *Service) subjectIsIn(p *acl.Principal, workspace string) *wireerr.Error {
	switch {
	case p.Kind == acl.User && p.Workspace == "":
		return invalid("the subject of the grant is a user, and the request is in no workspace")
	case p.Kind == acl.User:
		if user := p.Address.UserID(); !s.o.Members.InWorkspace(user, p.Workspace) || s.o.Members.Barred(user, p.Workspace) {
			return invalid("the subject of the grant is no member of workspace %.128q", p.Workspace)
		}
	case workspace != "" && !acl.CoversWorkspace(p, workspace):
		return invalid("the subject of the grant does not reach workspace %.128q", workspace)
	}
	return nil
}
