package session

import (
	"slices"
	"strings"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// status answers whether a principal is connected, on whatever gateway, from
// this gateway's copy of the directory.
func (s *Session) status(r *aetherv1.ConnectionStatusRequest) {
	answer := &aetherv1.ConnectionStatusResponse{RequestId: r.GetRequestId()}
	connected, err := s.isConnected(r.GetPrincipal())
	if err != nil {
		answer.Error = string(err.Code) + ": " + err.Message
	} else {
		answer.Ok, answer.Connected = true, connected
		if connected {
			answer.LastSeenAt = s.m.o.Now().Unix()
		}
	}
	s.urgent(frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_ConnectionStatusResponse{ConnectionStatusResponse: answer}}))
}

// typePrefixes are the addresses of the types of principals that have one.
var typePrefixes = map[string][]address.Prefix{
	"agent":           {address.PrefixAgent},
	"task":            {address.PrefixUniqueTask, address.PrefixTask},
	"unique_task":     {address.PrefixUniqueTask},
	"non_unique_task": {address.PrefixTask},
	"user":            {address.PrefixUser},
	"service":         {address.PrefixService},
	"bridge":          {address.PrefixBridge},
}

// isConnected decides who may ask: who may send to a principal may know whether
// it is there, and everybody of themselves; else whom a rule lets. Principals
// without an address are nobody's business.
func (s *Session) isConnected(ref *aetherv1.PrincipalRef) (bool, *wireerr.Error) {
	id := ref.GetPrincipalId()
	if id == s.identity {
		return true, nil
	}
	to, err := address.Parse(id)
	prefixes, known := typePrefixes[strings.ToLower(ref.GetPrincipalType())]
	switch {
	case err != nil && known:
		return false, wireerr.New(wireerr.InvalidArgument, "principal_id must be an identity such as ag::workspace::impl::spec; of a user, of one window")
	case err != nil:
		return false, wireerr.New(wireerr.PermissionDenied, "whether this principal is connected is not told")
	case !known || !slices.Contains(prefixes, to.Prefix()):
		return false, wireerr.New(wireerr.InvalidArgument, "principal_type and principal_id do not belong together")
	}
	r := s.m.o.Router
	if d := acl.Permit(&s.principal, acl.ActionStatusRead, to, r.Decide(&s.principal, to), r.Rules()); !d.Allowed {
		return false, wireerr.New(wireerr.PermissionDenied, "%s", d.Message(&s.principal, to))
	}
	held, certain := s.m.o.Presence.Held(to.String())
	if !held && !certain {
		return false, wireerr.New(wireerr.Unavailable, "who is connected is not known at present")
	}
	return held, nil
}
