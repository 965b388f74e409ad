package client

import (
	"context"
	"iter"
	"math"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Scope says who shares keys.
type Scope int32

// The scopes. Where a workspace is meant it is the agent's or task's own; other
// kinds name it, unless their credential covers one only.
const (
	ScopeWorkspace           = Scope(aetherv1.KVOperation_SCOPE_WORKSPACE)             // one implementation in one workspace
	ScopeGlobal              = Scope(aetherv1.KVOperation_SCOPE_GLOBAL)                // one implementation in all workspaces
	ScopeUser                = Scope(aetherv1.KVOperation_SCOPE_USER)                  // one implementation and one user
	ScopeUserWorkspace       = Scope(aetherv1.KVOperation_SCOPE_USER_WORKSPACE)        // the same in one workspace
	ScopeExclusive           = Scope(aetherv1.KVOperation_SCOPE_GLOBAL_EXCLUSIVE)      // this identity
	ScopeWorkspaceExclusive  = Scope(aetherv1.KVOperation_SCOPE_WORKSPACE_EXCLUSIVE)   // this identity in one workspace
	ScopeUserShared          = Scope(aetherv1.KVOperation_SCOPE_USER_SHARED)           // one user, whatever the implementation
	ScopeUserWorkspaceShared = Scope(aetherv1.KVOperation_SCOPE_USER_WORKSPACE_SHARED) // the same in one workspace
)

// KeySpace says whose keys. The zero value is those of the caller's
// implementation in its workspace.
type KeySpace struct {
	Scope Scope // 0 is ScopeWorkspace
	// Workspace is for kinds that are in none, such as services.
	Workspace string
	// User is for the scopes of one user.
	User string
	// Grant has the keys read and written on behalf of the grant's subject, whose
	// they must be to use, too. Empty: on one's own.
	Grant string
}

// Keys are the keys of a space. Get them with [Client.Keys]. All methods may be
// called by many goroutines at once; their requests are answered one after the
// other.
//
// A key has 1 to 512 bytes, a value up to 1 MiB. A ttl is how long a key lives,
// in whole seconds, rounded up; 0 is without end, and a key that has expired is
// as one that never was. An error is an *Error; one with CodeUnknownOutcome says
// that a change may or may not have been made. Details has "outcome": "unknown"
// if it is the gateway that does not know.
type Keys struct {
	c     *Client
	space KeySpace
}

// Keys returns the keys of a space. Agents, tasks, services, workflow engines
// and metrics bridges have keys.
func (c *Client) Keys(space KeySpace) *Keys { return &Keys{c: c, space: space} }

func seconds(ttl time.Duration) (int64, *Error) {
	if ttl < 0 {
		return 0, refused(CodeInvalidArgument, "a ttl is negative; 0 is without end")
	}
	s := int64(ttl / time.Second)
	if ttl%time.Second > 0 {
		s++
	}
	return s, nil
}

func (k *Keys) do(ctx context.Context, op *aetherv1.KVOperation, ttl time.Duration) (*aetherv1.KVResponse, error) {
	var e *Error
	if op.Ttl, e = seconds(ttl); e != nil {
		return nil, e
	}
	op.Scope, op.Workspace, op.UserId = aetherv1.KVOperation_Scope(k.space.Scope), k.space.Workspace, k.space.User
	if k.space.Grant != "" {
		op.Authorization = onBehalf(k.space.Grant)
	}
	frame, err := k.c.call(ctx, func(id string) *aetherv1.UpstreamMessage {
		op.RequestId = id
		return &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_KvOp{KvOp: op}}
	}, func(f *aetherv1.DownstreamMessage) bool { return !f.GetKv().GetSuccess() })
	if err != nil {
		return nil, err
	}
	return frame.GetKv(), nil
}

// Get returns a value; nil or empty if there is no such key. A counter is its
// number in decimal.
func (k *Keys) Get(ctx context.Context, key string) ([]byte, error) {
	r, err := k.do(ctx, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_GET, Key: key}, 0)
	return r.GetValue(), err
}

// Put stores a value, whatever was there.
func (k *Keys) Put(ctx context.Context, key string, value []byte, ttl time.Duration) error {
	_, err := k.do(ctx, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_PUT, Key: key, Value: value}, ttl)
	return err
}

// PutNew stores a value if there is no such key, and reports whether it has.
func (k *Keys) PutNew(ctx context.Context, key string, value []byte, ttl time.Duration) (made bool, err error) {
	r, err := k.do(ctx, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_SET_NX, Key: key, Value: value}, ttl)
	return r.GetApplied(), err
}

// Delete removes a key; without one it does nothing.
func (k *Keys) Delete(ctx context.Context, key string) error {
	_, err := k.do(ctx, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_DELETE, Key: key}, 0)
	return err
}

// Swap stores a value if the key holds old, and reports whether it has; if not,
// stored is what the key holds. A key that does not exist is as one that holds
// an empty value.
func (k *Keys) Swap(ctx context.Context, key string, old, value []byte, ttl time.Duration) (swapped bool, stored []byte, err error) {
	r, err := k.do(ctx, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_COMPARE_AND_SET, Key: key, ExpectedValue: old, Value: value}, ttl)
	return r.GetApplied(), r.GetValue(), err
}

// DeleteIf removes a key if it holds old, as [Keys.Swap] does.
func (k *Keys) DeleteIf(ctx context.Context, key string, old []byte) (deleted bool, stored []byte, err error) {
	r, err := k.do(ctx, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_COMPARE_AND_DELETE, Key: key, ExpectedValue: old}, 0)
	return r.GetApplied(), r.GetValue(), err
}

// Add adds delta, which may be negative, to a counter, and returns where it is
// then. A key that does not exist counts from 0 and is made with the ttl; one
// that exists keeps the end that it has. Past 64 bits, and on a key that holds no
// number, it fails.
func (k *Keys) Add(ctx context.Context, key string, delta int64, ttl time.Duration) (int64, error) {
	r, err := k.add(ctx, key, delta, aetherv1.KVOperation_OP_TYPE_INCREMENT, aetherv1.KVOperation_OP_TYPE_DECREMENT, 0, ttl)
	return r.GetCounterValue(), err
}

// AddWithin is Add if the counter does not pass limit by it: with a positive
// delta if the sum is at most limit, with a negative one if it is at least that.
// If not, n is where the counter is.
func (k *Keys) AddWithin(ctx context.Context, key string, delta, limit int64, ttl time.Duration) (n int64, added bool, err error) {
	r, err := k.add(ctx, key, delta, aetherv1.KVOperation_OP_TYPE_INCREMENT_IF, aetherv1.KVOperation_OP_TYPE_DECREMENT_IF, limit, ttl)
	return r.GetCounterValue(), r.GetApplied(), err
}

func (k *Keys) add(ctx context.Context, key string, delta int64, up, down aetherv1.KVOperation_OpType, limit int64, ttl time.Duration) (*aetherv1.KVResponse, error) {
	op := &aetherv1.KVOperation{Op: up, Key: key, DeltaValue: delta, GuardValue: limit}
	switch {
	case delta == 0 || delta == math.MinInt64:
		return nil, refused(CodeInvalidArgument, "a counter cannot be moved by %d", delta)
	case delta < 0:
		op.Op, op.DeltaValue = down, -delta
	}
	return k.do(ctx, op, ttl)
}

// AddMember adds a member to a set, and reports whether it is new and how many
// there are then. A set is made with the ttl and keeps the end that it has; it
// has up to 10,000 members, which can be counted and not be read.
func (k *Keys) AddMember(ctx context.Context, key string, member []byte, ttl time.Duration) (added bool, count int64, err error) {
	r, err := k.do(ctx, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_SET_ADD, Key: key, Value: member}, ttl)
	return r.GetApplied(), r.GetCounterValue(), err
}

// CountMembers returns how many members a set has; 0 if there is none.
func (k *Keys) CountMembers(ctx context.Context, key string) (int64, error) {
	r, err := k.do(ctx, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_SET_CARD, Key: key}, 0)
	return r.GetCounterValue(), err
}

// List ranges over the keys that begin with prefix and their values, in the
// order of their bytes; a set has no value. It reads a page at a time, so that
// what is changed meanwhile is seen or not. An error ends it.
//
//	for kv, err := range keys.List(ctx, "job/") {
//		if err != nil {
//			return err
//		}
//		use(kv.Key, kv.Value)
//	}
func (k *Keys) List(ctx context.Context, prefix string) iter.Seq2[KeyValue, error] {
	return func(yield func(KeyValue, error) bool) {
		for cursor := ""; ; {
			r, err := k.do(ctx, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_LIST, Key: prefix, Cursor: cursor}, 0)
			if err != nil {
				yield(KeyValue{}, err)
				return
			}
			for _, key := range r.GetKeys() {
				if !yield(KeyValue{Key: key, Value: r.GetKvMap()[key]}, nil) {
					return
				}
			}
			if cursor = r.GetNextCursor(); !r.GetHasMore() || cursor == "" {
				return
			}
		}
	}
}

// KeyValue is a key and what it holds.
type KeyValue struct {
	Key   string
	Value []byte
}

// PurgeIdentity removes all keys and checkpoints that belong to an identity
// alone, and returns how many: the caller's own, "", or, where a rule allows it,
// another one's.
func (c *Client) PurgeIdentity(ctx context.Context, identity string) (int64, error) {
	k := Keys{c: c}
	r, err := k.do(ctx, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_PURGE_IDENTITY, TargetIdentity: identity}, 0)
	return r.GetCounterValue(), err
}
