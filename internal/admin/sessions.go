package admin

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/peers"
	"github.com/aether-gateway/gateway/internal/session"
)

// What gateways ask each other, with the requests and responses of the service.
const (
	askSessions = "admin.sessions"
	askKick     = "admin.kick"
)

const (
	// maxPage bounds a page of any list.
	maxPage = 500
	// maxReason bounds what a kicked client is told, in bytes.
	maxReason = 256
)

func pageSize(asked int32) int {
	if asked <= 0 || asked > maxPage {
		return maxPage
	}
	return int(asked)
}

// ListSessions implements the service: every gateway gives its first sessions
// after the token, and what lies beyond the end of the shortest of their
// answers is left for the next page.
func (s *Service) ListSessions(ctx context.Context, r *adminv1.ListSessionsRequest) (*adminv1.ListSessionsResponse, error) {
	if err := checkKind(r.GetKind()); err != nil {
		return nil, err
	}
	question, err := proto.Marshal(r)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	answers, certain := s.o.Peers.AskAll(ctx, askSessions, question)
	if err := ctx.Err(); err != nil {
		return nil, status.FromContextError(err).Err() // it is not they who were silent
	}
	all, end := &adminv1.ListSessionsResponse{}, ""
	for _, a := range answers {
		var part adminv1.ListSessionsResponse
		if a.Err != nil || proto.Unmarshal(a.Payload, &part) != nil {
			all.Unanswered = append(all.Unanswered, nameOf(a))
			continue
		}
		all.Sessions = append(all.Sessions, part.GetSessions()...)
		if next := part.GetNextPageToken(); next != "" && (end == "" || next < end) {
			end = next
		}
	}
	if !certain {
		all.Unanswered = append(all.Unanswered, "(which gateways there are is not known at present)")
	}
	slices.SortFunc(all.Sessions, func(a, b *adminv1.Session) int { return cmp.Compare(keyOf(a), keyOf(b)) })
	if end != "" {
		all.Sessions = slices.DeleteFunc(all.Sessions, func(x *adminv1.Session) bool { return keyOf(x) > end })
	}
	if n := pageSize(r.GetPageSize()); len(all.Sessions) > n {
		all.Sessions = all.Sessions[:n]
		end = keyOf(all.Sessions[n-1])
	}
	all.NextPageToken = end
	return all, nil
}

// checkKind refuses the name of a kind of principal that there is none of.
func checkKind(name string) error {
	var names []string
	for k := acl.KindUnknown + 1; k.Known(); k++ {
		names = append(names, k.String())
	}
	if name == "" || slices.Contains(names, name) {
		return nil
	}
	return status.Errorf(codes.InvalidArgument, "kind %.64q does not exist; it is one of %s", name, strings.Join(names, ", "))
}

func nameOf(a peers.Answer) string { return cmp.Or(a.From.Name, a.From.ID) }

// keyOf is [session.Info.Key].
func keyOf(x *adminv1.Session) string { return x.GetIdentity() + "\x00" + x.GetSessionId() }

// answerSessions gives this gateway's part of a page.
func (s *Service) answerSessions(_ context.Context, question []byte) []byte {
	var r adminv1.ListSessionsRequest
	if proto.Unmarshal(question, &r) != nil {
		return nil
	}
	list, more := s.o.Sessions.List(session.Filter{
		Workspace: r.GetWorkspace(), Kind: r.GetKind(), IdentityPrefix: r.GetIdentityPrefix(), After: r.GetPageToken(),
	}, pageSize(r.GetPageSize()))
	part := &adminv1.ListSessionsResponse{}
	size := 0
	for _, i := range list {
		x := s.describe(i)
		// With the tag and the length of the element.
		if size += proto.Size(x) + 4; size > peers.MaxPayload-maxPageToken {
			more = true
			break
		}
		part.Sessions = append(part.Sessions, x)
	}
	if n := len(part.GetSessions()); more && n > 0 {
		part.NextPageToken = keyOf(part.GetSessions()[n-1])
	}
	return encode(part)
}

// maxPageToken is more than a session's key takes.
const maxPageToken = 4 << 10

// encode encodes what this gateway itself made, which cannot fail: its texts
// come from verified frames.
func encode(m proto.Message) []byte {
	b, err := proto.Marshal(m)
	if err != nil {
		return nil
	}
	return b
}

func (s *Service) describe(i session.Info) *adminv1.Session {
	x := &adminv1.Session{
		SessionId: i.ID, Identity: i.Identity, Kind: i.Kind.String(), Workspace: i.Workspace,
		Gateway: s.o.Name, ConnectedAt: i.ConnectedAt.Unix(), Peer: i.Peer,
	}
	if !i.ExpiresAt.IsZero() {
		x.ExpiresAt = i.ExpiresAt.Unix()
	}
	return x
}

// KickSession implements the service.
func (s *Service) KickSession(ctx context.Context, r *adminv1.KickSessionRequest) (*adminv1.KickSessionResponse, error) {
	response, err := s.kick(ctx, r)
	s.acted(ctx, audit.Operate, "sessions kick", r.GetTarget(), err)
	return response, err
}

func (s *Service) kick(ctx context.Context, r *adminv1.KickSessionRequest) (*adminv1.KickSessionResponse, error) {
	if strings.TrimSpace(r.GetTarget()) == "" {
		return nil, status.Error(codes.InvalidArgument, "name a session id or an identity")
	}
	if n := len(r.GetReason()); n > maxReason {
		return nil, status.Errorf(codes.InvalidArgument, "the reason has %d bytes, %d are allowed", n, maxReason)
	}
	if strings.ContainsFunc(r.GetReason(), func(c rune) bool { return !unicode.IsPrint(c) }) {
		return nil, status.Error(codes.InvalidArgument, "the reason has a line break, or another character that cannot be printed")
	}
	question, err := proto.Marshal(r)
	if err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	answers, certain := s.o.Peers.AskAll(ctx, askKick, question)
	all := &adminv1.KickSessionResponse{}
	for _, a := range answers {
		var part adminv1.KickSessionResponse
		if a.Err != nil || proto.Unmarshal(a.Payload, &part) != nil {
			all.Unanswered = append(all.Unanswered, nameOf(a))
			continue
		}
		all.Sessions = append(all.Sessions, part.GetSessions()...)
	}
	switch {
	case len(all.GetSessions()) > 0:
		return all, nil
	case len(all.GetUnanswered()) > 0:
		return nil, status.Errorf(codes.Unavailable, "no gateway that answered has the session, and %s did not answer; try again in 5 s",
			strings.Join(all.GetUnanswered(), ", "))
	case !certain:
		return nil, status.Error(codes.Unavailable, "which gateways there are is not known at present; try again in 5 s")
	}
	return nil, status.Errorf(codes.NotFound, "no session has the id or the identity %.256q", r.GetTarget())
}

// answerKick ends this gateway's sessions that are meant.
func (s *Service) answerKick(_ context.Context, question []byte) []byte {
	var r adminv1.KickSessionRequest
	if proto.Unmarshal(question, &r) != nil {
		return nil
	}
	part := &adminv1.KickSessionResponse{}
	for _, i := range s.o.Sessions.Kick(r.GetTarget(), r.GetReason()) {
		part.Sessions = append(part.Sessions, s.describe(i))
	}
	return encode(part)
}
