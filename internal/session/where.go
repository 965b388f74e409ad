package session

import (
	"context"
	"slices"
	"strings"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/where"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

const (
	// whereTimeout bounds how long an answer may take, whereInterval how soon a
	// session may ask again: other gateways have to be asked. What took long has
	// to be made up for by whereRest times as long, up to whereLongest.
	whereTimeout  = 3 * time.Second
	whereInterval = 50 * time.Millisecond
	whereRest     = 10
	whereLongest  = time.Second
	// maxLooking is how many questions are answered at a time; others wait.
	maxLooking = 4
	// maxRequestText bounds the request id of a question.
	maxRequestText = 128
)

// whereIs answers where a message is, to its sender and its receiver, and whom
// a rule lets know; for everybody else it does not exist. It answers later: nothing waits for it.
func (s *Session) whereIs(r *aetherv1.MessageStatusRequest) {
	now := s.m.o.Now()
	switch {
	case len(r.GetRequestId()) > maxRequestText:
		s.refuse("", wireerr.New(wireerr.InvalidArgument, "request_id has %d bytes, %d are allowed", len(r.GetRequestId()), maxRequestText))
	case r.GetMessageId() == "" || len(r.GetMessageId()) > where.MaxMessageID:
		s.refuse(r.GetRequestId(), wireerr.New(wireerr.InvalidArgument, "message_id must have 1 to %d bytes", where.MaxMessageID))
	case s.m.o.Finder == nil:
		s.refuse(r.GetRequestId(), wireerr.New(wireerr.NotImplemented, "where_is is not supported"))
	case !s.looking.CompareAndSwap(false, true):
		s.refuse(r.GetRequestId(), wireerr.New(wireerr.RateLimited, "one question about a message at a time").After(whereInterval))
	case now.Before(s.lookAgain):
		s.refuse(r.GetRequestId(), wireerr.New(wireerr.RateLimited, "too many questions about messages").After(s.lookAgain.Sub(now)))
		s.looking.Store(false)
	default:
		s.m.wg.Go(func() { s.guard(func() { s.look(r) }) })
	}
}

func (s *Session) look(r *aetherv1.MessageStatusRequest) {
	defer s.looking.Store(false)
	ctx, cancel := context.WithTimeout(s.st.Context(), whereTimeout)
	defer cancel()
	select {
	case s.m.looking <- struct{}{}:
		defer func() { <-s.m.looking }()
	case <-s.ended:
		return
	case <-ctx.Done():
		// Not looked for is not unknown.
		s.refuse(r.GetRequestId(), wireerr.New(wireerr.Unavailable, "too many ask where a message is").After(time.Second))
		return
	}
	began := time.Now()
	defer func() {
		s.lookAgain = s.m.o.Now().Add(min(max(whereInterval, whereRest*time.Since(began)), whereLongest))
	}()
	answer := &aetherv1.MessageStatus{RequestId: r.GetRequestId(), MessageId: r.GetMessageId()}
	if list := s.m.o.Finder.Recent(ctx, r.GetMessageId(), s.mayKnow); len(list) > 0 {
		latest := slices.MaxFunc(list, func(a, b where.Status) int { return int(a.TimestampMS - b.TimestampMS) })
		answer.State, answer.Deliveries, answer.Reason = aetherv1.MessageStatus_State(latest.State), latest.Deliveries, latest.Reason
		answer.Topic = latest.Topic
		if latest.State != router.StateRefused {
			answer.StoredAtMs = latest.TimestampMS
		}
	}
	if !s.over() {
		s.urgent(frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_MessageStatus{MessageStatus: answer}}))
	}
}

// mayKnow reports whether the session's principal sent a message, or reads its
// address, and no rule keeps it from knowing; or a rule lets it.
func (s *Session) mayKnow(source, topic string) bool {
	// A new credential may be taking the place of the old one, or a new workspace.
	s.handling.Lock()
	p, hears := s.principal, s.hears
	s.handling.Unlock()
	ws, event := strings.CutPrefix(topic, "event::")
	base := acl.Decision{Allowed: source == s.identity || slices.Contains(hears, topic) || event && s.events.Covers(ws)}
	to, err := address.Parse(topic)
	if err != nil {
		return base.Allowed // a refused send: there is no such address
	}
	return acl.Permit(&p, acl.ActionStatusRead, to, base, s.m.o.Router.Rules()).Allowed
}
