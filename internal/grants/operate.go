package grants

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

const (
	// maxBatch bounds what is exchanged in one call.
	maxBatch = 64
	// listLimit is how many grants are listed if nothing is said, maxList how
	// many at most, as far as they fit into maxListBytes.
	listLimit, maxList = 100, 1000
	maxListBytes       = 1 << 20
	// cacheHint is for how many seconds an answer may be kept: as long as a
	// revocation may take to be known everywhere.
	cacheHint = 2
)

// Operate answers an operation of a client. The error is the one in the answer,
// for the audit.
func (s *Service) Operate(ctx context.Context, c *Caller, op *aetherv1.AuthorityGrantOperation) (*aetherv1.AuthorityGrantResponse, *wireerr.Error) {
	answer, err := s.operate(ctx, c, op)
	if answer == nil {
		answer = &aetherv1.AuthorityGrantResponse{}
	}
	answer.RequestId, answer.Success = op.GetRequestId(), err == nil
	if err != nil {
		answer.Error, answer.Message = string(err.Code), err.Message
	} else {
		answer.CacheHintTtlSeconds = cacheHint
	}
	return answer, err
}

func (s *Service) operate(ctx context.Context, c *Caller, op *aetherv1.AuthorityGrantOperation) (*aetherv1.AuthorityGrantResponse, *wireerr.Error) {
	switch op.GetOp() {
	case aetherv1.AuthorityGrantOperation_OP_TYPE_EXCHANGE:
		if op.GetExchangeRequest() == nil {
			return nil, bad("exchange_request is missing")
		}
		g, err := s.exchange(ctx, c, op.GetExchangeRequest())
		return s.made(ctx, "grant exchange", g, err)
	case aetherv1.AuthorityGrantOperation_OP_TYPE_BATCH_EXCHANGE:
		return s.batch(ctx, c, op.GetBatchExchangeRequest())
	case aetherv1.AuthorityGrantOperation_OP_TYPE_DERIVE:
		r := op.GetDeriveRequest()
		if r == nil {
			return nil, bad("derive_request is missing")
		}
		g, err := s.derive(ctx, c, r.GetParentGrantId(), deriveAsked(r), r.GetDelegate())
		return s.made(ctx, "grant derive", g, err)
	case aetherv1.AuthorityGrantOperation_OP_TYPE_DERIVE_FOR_TARGET:
		r := op.GetDeriveForTargetRequest()
		if r == nil || r.GetTarget() == nil {
			return nil, bad("derive_for_target_request with its target is missing")
		}
		g, err := s.derive(ctx, c, r.GetParentGrantId(), targetAsked(r), r.GetTarget())
		return s.made(ctx, "grant derive", g, err)
	case aetherv1.AuthorityGrantOperation_OP_TYPE_GET:
		g, err := s.seen(ctx, c, op.GetGrantId())
		return s.shown(g, err)
	case aetherv1.AuthorityGrantOperation_OP_TYPE_RENEW:
		return s.renew(ctx, c, op.GetRenewRequest())
	case aetherv1.AuthorityGrantOperation_OP_TYPE_REVOKE:
		return s.revoke(ctx, c, op.GetGrantId())
	case aetherv1.AuthorityGrantOperation_OP_TYPE_LIST_MY_GRANTS:
		ids := []string{c.Principal.Name()}
		if own := refOf(c.Principal); own.id != ids[0] {
			ids = append(ids, own.id)
		}
		return s.list(ctx, store.GrantFilter{Delegates: ids}, op.GetListRequest())
	case aetherv1.AuthorityGrantOperation_OP_TYPE_LIST_GRANTS_ON_ME:
		own := refOf(c.Principal)
		return s.list(ctx, store.GrantFilter{SubjectType: own.kind, SubjectID: own.id}, op.GetListRequest())
	}
	return nil, bad("op %d is unknown", op.GetOp())
}

func (s *Service) made(ctx context.Context, action string, g store.Grant, err *wireerr.Error) (*aetherv1.AuthorityGrantResponse, *wireerr.Error) {
	if err == nil {
		err = s.add(ctx, action, g)
	}
	return s.shown(&g, err)
}

func (s *Service) shown(g *store.Grant, err *wireerr.Error) (*aetherv1.AuthorityGrantResponse, *wireerr.Error) {
	if err != nil {
		return nil, err
	}
	return &aetherv1.AuthorityGrantResponse{Grant: Info(g)}, nil
}

// batch makes several grants. Those that are refused leave the others as they
// are; if it is to stop at the first, those before it are made.
func (s *Service) batch(ctx context.Context, c *Caller, r *aetherv1.AuthorityGrantBatchExchangeRequest) (*aetherv1.AuthorityGrantResponse, *wireerr.Error) {
	n := len(r.GetRequests())
	if n == 0 || n > maxBatch {
		return nil, bad("batch_exchange_request has %d requests, 1 to %d are allowed", n, maxBatch)
	}
	var list []store.Grant
	var first *wireerr.Error
	var refused []string
	for i, one := range r.GetRequests() {
		g, err := s.exchange(ctx, c, one)
		if err == nil {
			list = append(list, g)
			continue
		}
		refused = append(refused, fmt.Sprintf("request %d: %s", i+1, err.Message))
		if first == nil {
			first = err
		}
		if r.GetStopOnFirstError() {
			break
		}
	}
	if err := s.add(ctx, "grant exchange", list...); err != nil {
		return nil, err
	}
	answer := &aetherv1.AuthorityGrantResponse{Total: int32(len(list))}
	for i := range list {
		answer.Grants = append(answer.Grants, Info(&list[i]))
	}
	if first != nil {
		first = wireerr.New(first.Code, "%s", strings.Join(refused, "; "))
	}
	return answer, first
}

// seen returns a grant that the caller has to do with: as its subject or
// delegate, or that of one from which it derives, or as who issued it. To all
// others it does not exist.
func (s *Service) seen(ctx context.Context, c *Caller, id string) (*store.Grant, *wireerr.Error) {
	if id == "" || len(id) > maxID {
		return nil, errUnknown()
	}
	g, ok, err := s.o.Store.Grant(ctx, id)
	switch {
	case err != nil && isText(err):
		return nil, errUnknown()
	case err != nil:
		return nil, s.away(err)
	case !ok || !s.concerns(&g, c):
		return nil, errUnknown()
	}
	return &g, nil
}

func errUnknown() *wireerr.Error { return wireerr.New(wireerr.NotFound, "there is no such grant") }

func (s *Service) concerns(g *store.Grant, c *Caller) bool {
	p := c.Principal
	if isRef(g.SubjectType, g.SubjectID, p) || isRef(g.DelegateType, g.DelegateID, p) || g.IssuedBy == p.Name() {
		return true
	}
	for h, depth := s.find(g.ParentID), 0; h != nil && depth <= MaxDepth; h, depth = s.find(h.ParentID), depth+1 {
		if isRef(h.DelegateType, h.DelegateID, p) {
			return true
		}
	}
	return false
}

// renew moves the expiry of a grant: for its subject, its delegate, and who
// issued it.
func (s *Service) renew(ctx context.Context, c *Caller, r *aetherv1.ACLRenewAuthorityGrantRequest) (*aetherv1.AuthorityGrantResponse, *wireerr.Error) {
	switch {
	case r == nil:
		return nil, bad("renew_request is missing")
	case r.GetExpiresAt() != 0 && r.GetExtendSeconds() != 0:
		return nil, bad("renew_request has both expires_at and extend_seconds")
	case r.GetExpiresAt() == 0 && r.GetExtendSeconds() <= 0:
		return nil, bad("renew_request says neither a new expires_at nor by how many seconds to extend")
	}
	if err := checkTime("expires_at", r.GetExpiresAt()); err != nil {
		return nil, err
	}
	g, err := s.seen(ctx, c, r.GetGrantId())
	if err != nil {
		return nil, err
	}
	until := time.Unix(r.GetExpiresAt(), 0)
	if r.GetExtendSeconds() != 0 {
		until = g.ExpiresAt.Add(time.Duration(r.GetExtendSeconds()) * time.Second)
	}
	if until.After(g.RenewableUntil) && until.Sub(g.RenewableUntil) < time.Second {
		until = g.RenewableUntil // told in whole seconds
	}
	renewed, done, fault := s.o.Store.RenewGrant(ctx, g.ID, until)
	switch {
	case fault != nil:
		return nil, s.away(fault)
	case !done:
		return nil, s.notRenewed(g, until)
	}
	s.record(c.Principal.Name(), "grant renew", &renewed)
	_ = s.refresh(ctx) // else the feed does it
	return s.shown(&renewed, nil)
}

// notRenewed says why a grant could not be renewed.
func (s *Service) notRenewed(g *store.Grant, until time.Time) *wireerr.Error {
	switch {
	case !g.RevokedAt.IsZero():
		return invalid("the grant was revoked")
	case !s.o.Now().Before(g.ExpiresAt):
		return invalid("the grant has expired")
	case until.After(g.RenewableUntil):
		return invalid("the grant may be renewed until %s at the latest", stamp(g.RenewableUntil))
	case !until.After(g.ExpiresAt):
		return bad("the grant is good until %s already", stamp(g.ExpiresAt))
	}
	return invalid("the grant would outlive the one of which it derives, or has just ended")
}

// revoke ends a grant and all that derive from it. Who may see it may end it:
// also its delegate, who wants it no longer.
func (s *Service) revoke(ctx context.Context, c *Caller, id string) (*aetherv1.AuthorityGrantResponse, *wireerr.Error) {
	g, err := s.seen(ctx, c, id)
	if err != nil {
		return nil, err
	}
	by := c.Principal.Name()
	n, fault := s.o.Store.RevokeGrants(ctx, []string{g.ID}, by, "revoked by "+by)
	if fault != nil {
		return nil, s.away(fault)
	}
	_ = s.refresh(ctx) // else the feed does it
	if n > 0 {
		s.o.Audit.Record(audit.Event{Kind: audit.Grant, Actor: by, Action: "grant revoke", Target: g.ID, Outcome: audit.OK, Detail: fmt.Sprintf("with those that derive from it: %d", n)})
	}
	if now, ok, err := s.o.Store.Grant(ctx, g.ID); err == nil && ok {
		g = &now
	} else {
		g.RevokedAt = s.o.Now()
	}
	return s.shown(g, nil)
}

func (s *Service) list(ctx context.Context, f store.GrantFilter, r *aetherv1.AuthorityGrantListRequest) (*aetherv1.AuthorityGrantResponse, *wireerr.Error) {
	limit, offset := int(r.GetLimit()), int(r.GetOffset())
	switch {
	case limit < 0 || offset < 0:
		return nil, bad("limit and offset must not be negative")
	case len(r.GetAudienceType())+len(r.GetAudienceId()) > 2048:
		return nil, bad("the audience is too long")
	case limit == 0:
		limit = listLimit
	}
	f.AudienceType, f.AudienceID, f.Ended = strings.ToLower(r.GetAudienceType()), r.GetAudienceId(), r.GetIncludeRevoked()
	list, total, err := s.o.Store.Grants(ctx, f, offset, min(limit, maxList))
	if err != nil {
		if isText(err) {
			return nil, bad("a text is not valid UTF-8 or contains a zero byte")
		}
		return nil, s.away(err)
	}
	answer, size := &aetherv1.AuthorityGrantResponse{Total: int32(min(total, math.MaxInt32))}, 0
	for i := range list {
		info := Info(&list[i])
		if size += proto.Size(info); size > maxListBytes {
			break // the next page begins behind what this one has
		}
		answer.Grants = append(answer.Grants, info)
	}
	return answer, nil
}
