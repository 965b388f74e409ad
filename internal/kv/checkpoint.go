package kv

import (
	"context"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

const (
	// maxCheckpoints is how many keys a list of checkpoints shows: it has no
	// pages.
	maxCheckpoints = 10_000
	// defaultCheckpointTTL says that the gateway decides how long one is kept.
	defaultCheckpointTTL = -1
)

// CheckpointOperation is a request about checkpoints that has been checked, and
// not been made yet.
type CheckpointOperation struct {
	s     *Service
	op    *aetherv1.CheckpointOperation
	place place
}

// PrepareCheckpoint checks a request, without waiting for anything. The request
// is the operation's from then on.
func (s *Service) PrepareCheckpoint(c *Caller, op *aetherv1.CheckpointOperation) (o *CheckpointOperation, err *wireerr.Error) {
	if o, err = s.prepareCheckpoint(c, op); err != nil {
		s.stats.count(nil, err)
	}
	return o, err
}

func (s *Service) prepareCheckpoint(c *Caller, op *aetherv1.CheckpointOperation) (*CheckpointOperation, *wireerr.Error) {
	pl, err := c.checkpoints()
	if err != nil {
		return nil, err
	}
	o := &CheckpointOperation{s: s, op: op, place: pl}
	action, name := acl.ActionKVRead, pl.name
	switch op.GetOp() {
	case aetherv1.CheckpointOperation_OP_TYPE_SAVE, aetherv1.CheckpointOperation_OP_TYPE_DELETE:
		action = acl.ActionKVWrite
	case aetherv1.CheckpointOperation_OP_TYPE_LOAD, aetherv1.CheckpointOperation_OP_TYPE_LIST:
	default:
		return nil, refusal(wireerr.InvalidArgument, "op %d is unknown", op.GetOp())
	}
	list := op.GetOp() == aetherv1.CheckpointOperation_OP_TYPE_LIST
	if err := checkKey(op.GetKey(), !list); err != nil {
		return nil, err
	}
	if !list {
		name += "::" + op.GetKey()
	}
	switch n := len(op.GetData()); {
	case n > MaxValue:
		return nil, tooLarge("data", n, MaxValue)
	case op.GetTtl() < defaultCheckpointTTL:
		return nil, refusal(wireerr.InvalidArgument, "ttl is negative; -1 leaves it to the gateway, 0 is without end")
	case op.GetTtl() > maxTTL:
		return nil, refusal(wireerr.InvalidArgument, "ttl is beyond a hundred years; 0 is without end")
	}
	return o, s.permitted(c, name, action)
}

// CheckpointSize is what the request holds in memory, in bytes, about.
func CheckpointSize(op *aetherv1.CheckpointOperation) int {
	return 256 + len(op.GetKey()) + len(op.GetData())
}

// Run makes the operation and returns the answer, without a request id.
func (o *CheckpointOperation) Run(ctx context.Context) (answer *aetherv1.CheckpointResponse, err *wireerr.Error) {
	answer, err = o.run(ctx)
	o.s.stats.count(&o.s.stats.Checkpoints, err)
	return answer, err
}

func (o *CheckpointOperation) run(ctx context.Context) (*aetherv1.CheckpointResponse, *wireerr.Error) {
	st, sp := o.s.o.Store, o.place.space
	answer := &aetherv1.CheckpointResponse{Success: true}
	var err error
	switch o.op.GetOp() {
	case aetherv1.CheckpointOperation_OP_TYPE_LOAD:
		var row store.KVRow
		var found bool
		if row, found, err = st.GetKV(ctx, sp, o.op.GetKey()); found {
			answer.Data, answer.SavedAt = row.Value, row.ChangedAt.Unix()
		}
	case aetherv1.CheckpointOperation_OP_TYPE_LIST:
		var more bool
		if answer.Keys, more, err = st.ListKVKeys(ctx, sp, o.op.GetKey(), "", maxCheckpoints); more {
			return nil, refusal(wireerr.QuotaExceeded, "there are more than %d checkpoints; name the beginning of their keys", maxCheckpoints)
		}
	default:
		account := store.KVAccount{Name: o.place.account, Keys: o.s.o.Keys, Bytes: o.s.o.Bytes}
		err = st.ChangeKV(ctx, sp, o.op.GetKey(), account, func(now time.Time, _ *store.KVRow) (store.KVChange, error) {
			if o.op.GetOp() == aetherv1.CheckpointOperation_OP_TYPE_DELETE {
				return store.KVChange{Verb: store.KVDelete}, nil
			}
			answer.SavedAt = now.Unix()
			return o.save(now), nil
		})
	}
	if err != nil {
		return nil, o.s.failed("checkpoint", err, true)
	}
	return answer, nil
}

func (o *CheckpointOperation) save(now time.Time) store.KVChange {
	c := store.KVChange{Verb: store.KVPut, Value: o.op.GetData(), ExpiresAt: expiry(now, o.op.GetTtl())}
	if c.Value == nil {
		c.Value = []byte{}
	}
	if o.op.GetTtl() == defaultCheckpointTTL && o.s.o.CheckpointTTL > 0 {
		c.ExpiresAt = now.Add(o.s.o.CheckpointTTL)
	}
	return c
}
