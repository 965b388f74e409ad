package router

import (
	"strconv"

	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/limits"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Limit makes the sender's rates those of an account. It is called before the
// first Send; without it there are no limits. The account stays the caller's.
func (s *Sender) Limit(a *limits.Account) { s.account = a }

// checkRates takes a send from the rates under which it comes (gateway.md 18),
// or refuses it. The sizes have been checked: what can never pass is not told to
// come again.
func (s *Sender) checkRates(e *envelope.Envelope) *wireerr.Error {
	if s.account == nil {
		return nil
	}
	size := len(e.Payload) + len(e.Subject)
	for k, v := range e.Metadata {
		size += len(k) + len(v)
	}
	return s.Spend(e.Workspace, size)
}

// Spend takes a request of so many bytes from the rates of messages, as if it
// were one, or refuses it. It is called where Send is.
func (s *Sender) Spend(workspace string, size int) *wireerr.Error {
	if s.account == nil {
		return nil
	}
	v := s.account.Take(workspace, size)
	if !v.Refused {
		return nil
	}
	code := wireerr.RateLimited
	if v.Scope == limits.Workspace {
		code = wireerr.WorkspaceRateLimited
	}
	limit := strconv.FormatInt(int64(v.Limit), 10)
	return wireerr.New(code, "over the %s's limit of %s %s per second; nothing was done", v.Scope, limit, v.Unit).
		After(v.After).With("scope", v.Scope.String()).With("unit", v.Unit.String()).With("limit", limit)
}
