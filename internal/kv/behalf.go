package kv

import (
	"context"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/grants"
	"github.com/aether-gateway/gateway/internal/wireerr"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Grants says who may act for whom: a [grants.Service].
type Grants interface {
	// May decides whether something may be done under a grant, and returns the
	// subject.
	May(ctx context.Context, u *grants.Use) (*acl.Principal, *wireerr.Error)
}

// names finds out whether a request is made in another's name, which is never
// taken for being made in the caller's own.
func (o *Operation) names() (err *wireerr.Error) {
	o.behalf, err = grants.Names(&o.caller.Principal, o.op.GetAuthorization())
	switch {
	case err != nil || !o.behalf:
		return err
	case o.s.o.Grants == nil:
		return refusal(wireerr.GrantInvalid, "there is no such grant")
	case o.op.GetOp() == aetherv1.KVOperation_OP_TYPE_PURGE_IDENTITY:
		return refusal(wireerr.InvalidArgument, "the keys of an identity are not purged on behalf of others")
	}
	return nil
}

// authorize refuses what the grant that a request names does not cover, or what
// its subject may not do itself: what the caller may do has been decided.
func (o *Operation) authorize(ctx context.Context) *wireerr.Error {
	if !o.behalf {
		return nil
	}
	c := o.caller
	workspace := o.place.space.Workspace
	if workspace == "" {
		workspace = c.Principal.Workspace // it acts there
	}
	for _, action := range needs[o.op.GetOp()] {
		level := grants.LevelRead
		if action == acl.ActionKVWrite {
			level = grants.LevelWrite
		}
		subject, err := o.s.o.Grants.May(ctx, &grants.Use{
			Actor: &c.Principal, Session: c.Session, Under: o.op.GetAuthorization(), Operation: action.String(), Level: level, Workspace: workspace,
		})
		if err != nil {
			return err
		}
		if !o.has(subject, action) {
			return refusal(wireerr.GrantInvalid, "the subject of the grant may not do %s with these keys", action)
		}
	}
	return nil
}

// has reports whether keys are a subject's to use. Users have none of their own;
// theirs are those that are kept about them.
func (o *Operation) has(subject *acl.Principal, action acl.Action) bool {
	sp := &o.place.space
	who := &Caller{Principal: *subject, Identity: subject.Name(), Implementation: subject.Address.Implementation()}
	switch {
	case o.s.denied(who, action, o.name):
		return false
	case subject.Kind == acl.User:
		switch sp.Scope {
		case scopeUser, scopeUserWorkspace, scopeUserShared, scopeUserWorkspaceShared:
			return sp.Owner == subject.Address.UserID()
		}
		return false
	}
	same, err := o.s.place(who, aetherv1.KVOperation_Scope(sp.Scope), sp.Workspace, o.op.GetUserId())
	return err == nil && same.space == *sp
}
