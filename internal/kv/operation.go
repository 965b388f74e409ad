package kv

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

const (
	// MaxKey and MaxValue bound a key and a value, in bytes.
	MaxKey   = 512
	MaxValue = 1 << 20
	// maxTTL is a hundred years, in seconds.
	maxTTL = 100 * 365 * 24 * 3600
)

// The forms of values in the store.
const (
	formValue uint8 = iota
	formSet
)

// Operation is a request that has been checked, and not been made yet.
type Operation struct {
	s      *Service
	caller *Caller
	op     *aetherv1.KVOperation
	place  place
	// name is how rules call the keys, with the key; behalf says that it is made in
	// another's name.
	name   string
	behalf bool
	// target is whose keys a purge removes.
	target string
	// after is where a listing goes on.
	after string
}

// Prepare checks a request, without waiting for anything. The caller and the
// request are the operation's from then on. The error is what [Failure] tells.
func (s *Service) Prepare(c *Caller, op *aetherv1.KVOperation) (o *Operation, err *wireerr.Error) {
	if o, err = s.prepare(c, op); err != nil {
		s.stats.count(nil, err)
	}
	return o, err
}

func (s *Service) prepare(c *Caller, op *aetherv1.KVOperation) (*Operation, *wireerr.Error) {
	o := &Operation{s: s, caller: c, op: op}
	if err := o.checkFields(); err != nil {
		return nil, err
	}
	if err := o.names(); err != nil {
		return nil, err
	}
	if op.GetOp() == aetherv1.KVOperation_OP_TYPE_PURGE_IDENTITY {
		return o, o.preparePurge()
	}
	var err *wireerr.Error
	if o.place, err = s.place(c, op.GetScope(), op.GetWorkspace(), op.GetUserId()); err != nil {
		return nil, err
	}
	o.name = o.place.name
	if op.GetOp() != aetherv1.KVOperation_OP_TYPE_LIST {
		o.name += "::" + op.GetKey()
	} else if o.after, err = parseCursor(op.GetCursor(), o.listing(), op.GetKey()); err != nil {
		return nil, err
	}
	return o, s.permitted(c, o.name, needs[op.GetOp()]...)
}

// needs are the actions that rules may deny. Who gets to know what is stored
// needs kv:read, too.
var needs = map[aetherv1.KVOperation_OpType][]acl.Action{
	aetherv1.KVOperation_OP_TYPE_GET:                {acl.ActionKVRead},
	aetherv1.KVOperation_OP_TYPE_LIST:               {acl.ActionKVRead},
	aetherv1.KVOperation_OP_TYPE_SET_CARD:           {acl.ActionKVRead},
	aetherv1.KVOperation_OP_TYPE_PUT:                {acl.ActionKVWrite},
	aetherv1.KVOperation_OP_TYPE_DELETE:             {acl.ActionKVWrite},
	aetherv1.KVOperation_OP_TYPE_PURGE_IDENTITY:     {acl.ActionKVWrite},
	aetherv1.KVOperation_OP_TYPE_INCREMENT:          {acl.ActionKVWrite, acl.ActionKVRead},
	aetherv1.KVOperation_OP_TYPE_DECREMENT:          {acl.ActionKVWrite, acl.ActionKVRead},
	aetherv1.KVOperation_OP_TYPE_INCREMENT_IF:       {acl.ActionKVWrite, acl.ActionKVRead},
	aetherv1.KVOperation_OP_TYPE_DECREMENT_IF:       {acl.ActionKVWrite, acl.ActionKVRead},
	aetherv1.KVOperation_OP_TYPE_SET_NX:             {acl.ActionKVWrite, acl.ActionKVRead},
	aetherv1.KVOperation_OP_TYPE_COMPARE_AND_SET:    {acl.ActionKVWrite, acl.ActionKVRead},
	aetherv1.KVOperation_OP_TYPE_COMPARE_AND_DELETE: {acl.ActionKVWrite, acl.ActionKVRead},
	aetherv1.KVOperation_OP_TYPE_SET_ADD:            {acl.ActionKVWrite, acl.ActionKVRead},
}

// checkFields refuses what no caller may ask.
func (o *Operation) checkFields() *wireerr.Error {
	op := o.op
	if _, known := needs[op.GetOp()]; !known {
		return refusal(wireerr.InvalidArgument, "op %d is unknown", op.GetOp())
	}
	wantsKey := op.GetOp() != aetherv1.KVOperation_OP_TYPE_LIST && op.GetOp() != aetherv1.KVOperation_OP_TYPE_PURGE_IDENTITY
	if err := checkKey(op.GetKey(), wantsKey); err != nil {
		return err
	}
	for field, value := range map[string][]byte{"value": op.GetValue(), "expected_value": op.GetExpectedValue()} {
		if n := len(value); n > MaxValue {
			return tooLarge(field, n, MaxValue)
		}
	}
	switch {
	case op.GetTtl() < 0:
		return refusal(wireerr.InvalidArgument, "ttl is negative; 0 is without end")
	case op.GetTtl() > maxTTL:
		return refusal(wireerr.InvalidArgument, "ttl is beyond a hundred years; 0 is without end")
	case op.GetDeltaValue() < 0:
		return refusal(wireerr.InvalidArgument, "delta_value is negative; the opposite operation counts the other way")
	case op.GetLimit() < 0:
		return refusal(wireerr.InvalidArgument, "limit is negative")
	case op.GetOp() == aetherv1.KVOperation_OP_TYPE_SET_ADD && len(op.GetValue()) == 0:
		return refusal(wireerr.InvalidArgument, "value is missing: it is what is added to the set")
	case op.GetOp() != aetherv1.KVOperation_OP_TYPE_PURGE_IDENTITY && op.GetTargetIdentity() != "" && op.GetTargetIdentity() != o.caller.Identity:
		return refusal(wireerr.PermissionDenied, "the keys of another identity are out of reach")
	}
	return nil
}

func checkKey(key string, wanted bool) *wireerr.Error {
	switch {
	case key == "" && wanted:
		return refusal(wireerr.InvalidArgument, "key is missing")
	case len(key) > MaxKey:
		return tooLarge("key", len(key), MaxKey)
	case strings.IndexByte(key, 0) >= 0:
		return refusal(wireerr.InvalidArgument, "key has a zero byte")
	}
	return nil
}

// What is told of texts and values that are too large is their size, as of
// payloads.
func tooLarge(field string, size, limit int) *wireerr.Error {
	return refusal(wireerr.PayloadTooLarge, "%s has %d bytes, %d are allowed", field, size, limit).
		With("limit", itoa(int64(limit))).With("size", itoa(int64(size)))
}

// Size is what the request holds in memory, in bytes, about.
func Size(op *aetherv1.KVOperation) int {
	return 256 + len(op.GetKey()) + len(op.GetValue()) + len(op.GetExpectedValue()) + len(op.GetCursor())
}

// Name says which keys the operation is about, for the audit: not their values.
func (o *Operation) Name() string { return o.place.name }

// Run makes the operation and returns the answer, without a request id.
func (o *Operation) Run(ctx context.Context) (answer *aetherv1.KVResponse, err *wireerr.Error) {
	answer, err = o.run(ctx)
	o.s.stats.count(o.s.stats.of(o.op.GetOp()), err)
	return answer, err
}

func (o *Operation) run(ctx context.Context) (*aetherv1.KVResponse, *wireerr.Error) {
	if err := o.authorize(ctx); err != nil {
		return nil, err
	}
	switch o.op.GetOp() {
	case aetherv1.KVOperation_OP_TYPE_GET, aetherv1.KVOperation_OP_TYPE_SET_CARD:
		return o.read(ctx)
	case aetherv1.KVOperation_OP_TYPE_LIST:
		return o.list(ctx)
	case aetherv1.KVOperation_OP_TYPE_PURGE_IDENTITY:
		return o.purge(ctx)
	}
	var answer *aetherv1.KVResponse
	account := store.KVAccount{Name: o.place.account, Keys: o.s.o.Keys, Bytes: o.s.o.Bytes}
	err := o.s.o.Store.ChangeKV(ctx, o.place.space, o.op.GetKey(), account, func(now time.Time, row *store.KVRow) (store.KVChange, error) {
		answer = &aetherv1.KVResponse{Success: true}
		c, refused := o.change(now, row, answer)
		if refused != nil {
			return c, refused
		}
		return c, nil
	})
	if err != nil {
		return nil, o.s.failed(o.op.GetOp().String(), err, o.repeatable())
	}
	return answer, nil
}

func (o *Operation) repeatable() bool {
	switch o.op.GetOp() {
	case aetherv1.KVOperation_OP_TYPE_PUT, aetherv1.KVOperation_OP_TYPE_DELETE, aetherv1.KVOperation_OP_TYPE_PURGE_IDENTITY:
		return true
	}
	return false
}

// read answers GET and SET_CARD.
func (o *Operation) read(ctx context.Context) (*aetherv1.KVResponse, *wireerr.Error) {
	row, found, err := o.s.o.Store.GetKV(ctx, o.place.space, o.op.GetKey())
	if err != nil {
		return nil, o.s.failed(o.op.GetOp().String(), err, true)
	}
	answer := &aetherv1.KVResponse{Success: true}
	set := o.op.GetOp() == aetherv1.KVOperation_OP_TYPE_SET_CARD
	if found {
		if err := wants(&row, set); err != nil {
			return nil, err
		}
	}
	if set {
		answer.CounterValue = members(row.Value)
	} else {
		answer.Value = row.Value
	}
	return answer, nil
}

// wants refuses a key of the other form.
func wants(row *store.KVRow, set bool) *wireerr.Error {
	switch {
	case row == nil || set == (row.Form == formSet):
		return nil
	case set:
		return refusal(wireerr.InvalidArgument, "the key holds a value, not a set")
	}
	return refusal(wireerr.InvalidArgument, "the key holds a set, not a value")
}

// change says what becomes of a key, and completes the answer. It may be called
// again, and begins anew then.
func (o *Operation) change(now time.Time, row *store.KVRow, answer *aetherv1.KVResponse) (store.KVChange, *wireerr.Error) {
	switch op := o.op; op.GetOp() {
	case aetherv1.KVOperation_OP_TYPE_PUT:
		return o.put(now, op.GetValue()), nil
	case aetherv1.KVOperation_OP_TYPE_DELETE:
		answer.Applied = row != nil
		return store.KVChange{Verb: store.KVDelete}, nil
	case aetherv1.KVOperation_OP_TYPE_SET_NX:
		if answer.Applied = row == nil; answer.Applied {
			return o.put(now, op.GetValue()), nil
		}
		return store.KVChange{}, nil
	case aetherv1.KVOperation_OP_TYPE_COMPARE_AND_SET, aetherv1.KVOperation_OP_TYPE_COMPARE_AND_DELETE:
		return o.compare(now, row, answer)
	case aetherv1.KVOperation_OP_TYPE_SET_ADD:
		return o.addMember(now, row, answer)
	}
	return o.count(now, row, answer)
}

// put is a new value with the end that the request says.
func (o *Operation) put(now time.Time, value []byte) store.KVChange {
	if value == nil {
		value = []byte{}
	}
	return store.KVChange{Verb: store.KVPut, Value: value, ExpiresAt: expiry(now, o.op.GetTtl())}
}

// update is a new value of a key that lives as long as it did; one that is made
// gets the end that the request says.
func (o *Operation) update(now time.Time, row *store.KVRow, value []byte) store.KVChange {
	c := o.put(now, value)
	if row != nil {
		c.ExpiresAt, c.Form = row.ExpiresAt, row.Form
	}
	return c
}

func expiry(now time.Time, seconds int64) time.Time {
	if seconds <= 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(seconds) * time.Second)
}

// compare makes COMPARE_AND_SET and COMPARE_AND_DELETE. An empty expectation is
// met by a key that does not exist, as GET shows both the same way.
func (o *Operation) compare(now time.Time, row *store.KVRow, answer *aetherv1.KVResponse) (store.KVChange, *wireerr.Error) {
	if err := wants(row, false); err != nil {
		return store.KVChange{}, err
	}
	var stored []byte
	if row != nil {
		stored = row.Value
	}
	deletes := o.op.GetOp() == aetherv1.KVOperation_OP_TYPE_COMPARE_AND_DELETE
	if !bytes.Equal(stored, o.op.GetExpectedValue()) || deletes && row == nil {
		answer.Value = stored
		return store.KVChange{}, nil
	}
	answer.Applied = true
	if deletes {
		return store.KVChange{Verb: store.KVDelete}, nil
	}
	return o.put(now, o.op.GetValue()), nil
}
