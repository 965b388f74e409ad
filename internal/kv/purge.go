package kv

import (
	"context"
	"strings"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/wireerr"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// preparePurge checks PURGE_IDENTITY: of the caller's own identity, or of
// another one that a rule lets it write.
func (o *Operation) preparePurge() *wireerr.Error {
	c := o.caller
	if err := c.mayKeep(); err != nil {
		return err
	}
	o.target = o.op.GetTargetIdentity()
	own := o.target == "" || o.target == c.Identity
	if own {
		o.target = c.Identity
	}
	if len(o.target) > maxIdentity || !strings.Contains(o.target, "::") { // a user is no identity
		return refusal(wireerr.InvalidArgument, "target_identity must be an identity such as ag::workspace::impl::spec")
	}
	o.place.name = "identity::" + o.target
	if err := o.s.permitted(c, o.place.name, acl.ActionKVWrite); err != nil {
		return err
	}
	if !own && (o.s.o.Rules == nil || o.s.o.Rules.EffectOn(c.Identity, acl.ActionKVWrite, o.place.name) != acl.Allow) {
		return refusal(wireerr.PermissionDenied, "the keys of another identity are out of reach, unless a rule allows kv:write of identity::IDENTITY")
	}
	return nil
}

// maxIdentity is more than an identity string can have.
const maxIdentity = 1024

// purge removes all keys of an identity, its checkpoints too, and tells how many
// there were.
func (o *Operation) purge(ctx context.Context) (*aetherv1.KVResponse, *wireerr.Error) {
	n, err := o.s.o.Store.PurgeKV(ctx, o.target)
	if err != nil {
		return nil, o.s.failed("PURGE_IDENTITY", err, true)
	}
	return &aetherv1.KVResponse{Success: true, CounterValue: n, Applied: n > 0}, nil
}
