package session

import (
	"errors"
	"net"

	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// What of sessions is recorded in the audit.

// came records a session that has begun.
func (m *Manager) came(s *Session) {
	m.o.Audit.Record(audit.Event{
		Kind: audit.Connect, Actor: s.identity, Action: "connect", Target: s.id, Outcome: audit.OK, Detail: "from " + host(s.st),
	})
}

// went records a session that has ended.
func (m *Manager) went(s *Session, err error) {
	st := status.Convert(err)
	m.o.Audit.Record(audit.Event{
		Kind: audit.Connect, Actor: s.identity, Action: "disconnect", Target: s.id, Outcome: audit.OK, Reason: st.Code().String(), Detail: st.Message(),
	})
}

// refused records a connection that was refused. Who it claimed to be proves
// nothing: it is its host that is counted.
func (m *Manager) refused(st Stream, init *aetherv1.InitConnection, err error) {
	e := audit.Event{Kind: audit.Refusal, Actor: host(st), Action: "connect", Outcome: audit.Refused}
	if id, err := claimed(init); err == nil {
		e.Target = id.String()
	}
	s := status.Convert(err)
	e.Reason, e.Detail = s.Code().String(), s.Message()
	if over, ok := errors.AsType[*keyOver](err); ok {
		e.Detail += ": key " + over.key
	}
	m.o.Audit.Record(e)
}

// turnedAway records a connection beyond the admission rate, whoever made it.
func (m *Manager) turnedAway() {
	m.o.Audit.Record(audit.Event{
		Kind: audit.Refusal, Actor: "(anybody)", Action: "connect", Outcome: audit.Refused, Reason: "ResourceExhausted", Detail: "beyond admission.rate",
	})
}

// record records what was refused to the session's client. What the gateway
// cannot do at present is no refusal of the client.
func (s *Session) record(action, target string, err *wireerr.Error) {
	s.m.refusals.add(err.Code)
	if entry, ok := wireerr.Lookup(err.Code); ok && entry.Fault == wireerr.Server {
		return
	}
	s.m.o.Audit.Record(audit.Event{
		Kind: audit.Refusal, Actor: s.identity, Action: action, Target: target, Outcome: audit.Refused,
		Reason: string(err.Code), Detail: err.Message,
	})
}

// host is the other end of a connection, without the port, which says nothing.
func host(st Stream) string {
	if h, _, err := net.SplitHostPort(st.Peer()); err == nil {
		return h
	}
	return st.Peer()
}
