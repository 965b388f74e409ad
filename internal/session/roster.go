package session

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/aether-gateway/gateway/internal/acl"
)

// Info describes a live session.
type Info struct {
	ID, Identity string
	Kind         acl.Kind
	// Workspace is where it is now; empty for kinds that are in none.
	Workspace   string
	ConnectedAt time.Time
	// ExpiresAt is when its credential expires; zero: never.
	ExpiresAt time.Time
	// Peer is the other end of its connection.
	Peer string
}

// Key orders sessions: by identity, then by id.
func (i Info) Key() string { return i.Identity + "\x00" + i.ID }

// Filter chooses sessions. Empty fields choose all.
type Filter struct {
	Workspace, Kind, IdentityPrefix string
	// After leaves out all up to that [Info.Key].
	After string
}

func (f *Filter) matches(i *Info) bool {
	return (f.Workspace == "" || i.Workspace == f.Workspace) && (f.Kind == "" || i.Kind.String() == f.Kind) &&
		strings.HasPrefix(i.Identity, f.IdentityPrefix) && (f.After == "" || i.Key() > f.After)
}

// List returns up to limit of this gateway's live sessions in the order of
// their keys, and whether there are more.
func (m *Manager) List(f Filter, limit int) (list []Info, more bool) {
	for _, s := range m.all() {
		if s.over() {
			continue
		}
		if i := s.info(); f.matches(&i) {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b Info) int { return cmp.Compare(a.Key(), b.Key()) })
	if len(list) > limit {
		return list[:limit], true
	}
	return list, false
}

func (s *Session) info() Info {
	i := Info{
		ID: s.id, Identity: s.identity, Kind: s.kind, Workspace: s.place.Load().workspace, ConnectedAt: s.since, Peer: s.st.Peer(),
	}
	if ms := s.life.held.Load().expiresAtMs(); ms > 0 {
		i.ExpiresAt = time.UnixMilli(ms)
	}
	return i
}

// over reports whether the session is about to end.
func (s *Session) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// Kick ends this gateway's sessions with an id or an identity, for an operator,
// and returns them. From now on nothing more is taken from them or delivered to
// them; their clients are told not to come back by themselves.
func (m *Manager) Kick(target, reason string) []Info {
	var kicked []Info
	for _, s := range m.all() {
		if (s.id == target || s.identity == target) && s.kick(reason) {
			kicked = append(kicked, s.info())
		}
	}
	return kicked
}

func (s *Session) kick(reason string) bool {
	text := "an operator has ended the session"
	if reason != "" {
		text += ": " + reason
	}
	return s.putOut(codes.Aborted, "KICKED", text)
}
