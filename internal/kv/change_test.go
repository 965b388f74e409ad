package kv

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

func (b *bench) counts(kind aetherv1.KVOperation_OpType, delta, guard, want int64, applied bool) {
	b.t.Helper()
	r := b.do(a, &aetherv1.KVOperation{Op: kind, Key: "n", DeltaValue: delta, GuardValue: guard})
	if r.GetCounterValue() != want || r.GetApplied() != applied {
		b.t.Errorf("%v by %d, guard %d: %d, applied %v, want %d, %v", kind, delta, guard, r.GetCounterValue(), r.GetApplied(), want, applied)
	}
}

func Test15Counters(t *testing.T) {
	t.Parallel()
	const up, down, upIf, downIf = aetherv1.KVOperation_OP_TYPE_INCREMENT, aetherv1.KVOperation_OP_TYPE_DECREMENT,
		aetherv1.KVOperation_OP_TYPE_INCREMENT_IF, aetherv1.KVOperation_OP_TYPE_DECREMENT_IF
	b := newBench(t, nil)
	b.counts(up, 0, 0, 1, true)
	b.counts(up, 5, 0, 6, true)
	b.counts(down, 2, 0, 4, true)
	b.counts(upIf, 1, 5, 5, true)
	b.counts(upIf, 1, 5, 5, false)
	b.counts(downIf, 0, 4, 4, true)
	b.counts(downIf, 1, 4, 4, false)
	b.counts(down, 10, 0, -6, true)
	b.value(a, "n", "-6")
	b.do(a, put("n", "41"))
	b.counts(up, 0, 0, 42, true)
	if r := b.do(a, &aetherv1.KVOperation{Op: upIf, Key: "none", GuardValue: -1}); r.GetApplied() || r.GetCounterValue() != 0 {
		t.Errorf("a counter that is not there: %v", r)
	}
	b.value(a, "none", "")
	// The largest numbers are reached and not passed.
	b.do(a, put("n", fmt.Sprint(int64(math.MaxInt64-1))))
	b.counts(up, 1, 0, math.MaxInt64, true)
	b.refused(a, op(up, "n"), wireerr.InvalidArgument, "beyond 64 bits")
	b.counts(upIf, math.MaxInt64, math.MaxInt64, math.MaxInt64, false)
	b.do(a, put("n", fmt.Sprint(int64(math.MinInt64+1))))
	b.counts(down, 1, 0, math.MinInt64, true)
	b.refused(a, &aetherv1.KVOperation{Op: down, Key: "n", DeltaValue: math.MaxInt64}, wireerr.InvalidArgument, "beyond 64 bits")
	b.counts(downIf, 1, math.MinInt64, math.MinInt64, false)
	for _, text := range []string{"", "x", "1.5", "+1", "007", " 1", "-0", "9223372036854775808", strings.Repeat("1", 100)} {
		b.do(a, put("n", text))
		b.refused(a, op(up, "n"), wireerr.InvalidArgument, "does not hold a number")
		b.value(a, "n", text)
	}
}

func Test15Compare(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	cas := func(expected, value, stored string, applied bool) {
		t.Helper()
		r := b.do(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_COMPARE_AND_SET, Key: "k", ExpectedValue: []byte(expected), Value: []byte(value)})
		if r.GetApplied() != applied || string(r.GetValue()) != stored {
			t.Errorf("%q to %q: applied %v, stored %q", expected, value, r.GetApplied(), r.GetValue())
		}
	}
	cad := func(expected, stored string, applied bool) {
		t.Helper()
		r := b.do(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_COMPARE_AND_DELETE, Key: "k", ExpectedValue: []byte(expected)})
		if r.GetApplied() != applied || string(r.GetValue()) != stored {
			t.Errorf("delete %q: applied %v, stored %q", expected, r.GetApplied(), r.GetValue())
		}
	}
	cas("x", "one", "", false)
	cad("", "", false)
	cas("", "one", "", true)
	cas("", "two", "one", false)
	cas("one", "two", "", true)
	cad("one", "two", false)
	cad("two", "", true)
	b.value(a, "k", "")
	nx := func(want bool) {
		t.Helper()
		if r := b.do(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_SET_NX, Key: "k", Value: []byte("first")}); r.GetApplied() != want {
			t.Errorf("SET_NX applied %v", r.GetApplied())
		}
	}
	nx(true)
	nx(false)
	b.value(a, "k", "first")
}

func Test15Sets(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	added := func(member string, card int64, want bool) {
		t.Helper()
		r := b.do(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_SET_ADD, Key: "s", Value: []byte(member)})
		if r.GetApplied() != want || r.GetCounterValue() != card {
			t.Errorf("%.20q: applied %v, %d members", member, r.GetApplied(), r.GetCounterValue())
		}
	}
	card := func(key string, want int64) {
		t.Helper()
		if n := b.do(a, op(aetherv1.KVOperation_OP_TYPE_SET_CARD, key)).GetCounterValue(); n != want {
			t.Errorf("%s has %d members", key, n)
		}
	}
	card("s", 0)
	for i := range 20 {
		added(fmt.Sprint(i*7%20), int64(i+1), true)
	}
	for i := range 20 {
		added(fmt.Sprint(i), 20, false)
	}
	added(strings.Repeat("x", MaxValue), 21, true)
	card("s", 21)
	// A set is no value and a value no set.
	b.refused(a, get("s"), wireerr.InvalidArgument, "holds a set")
	b.refused(a, op(aetherv1.KVOperation_OP_TYPE_INCREMENT, "s"), wireerr.InvalidArgument, "holds a set")
	b.refused(a, op(aetherv1.KVOperation_OP_TYPE_COMPARE_AND_DELETE, "s"), wireerr.InvalidArgument, "holds a set")
	b.do(a, put("v", "v"))
	b.refused(a, op(aetherv1.KVOperation_OP_TYPE_SET_CARD, "v"), wireerr.InvalidArgument, "not a set")
	b.refused(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_SET_ADD, Key: "v", Value: []byte("x")}, wireerr.InvalidArgument, "not a set")
	if r := b.do(a, op(aetherv1.KVOperation_OP_TYPE_LIST, "")); len(r.GetKeys()) != 2 || len(r.GetKvMap()) != 1 {
		t.Errorf("listed %v", r)
	}
	b.do(a, put("s", "now a value"))
	b.value(a, "s", "now a value")
	// It is bounded.
	full := make([]byte, maxMembers*digestSize)
	err := b.store.ChangeKV(context.Background(), store.KVSpace{Workspace: "w", Scope: scopeWorkspace, Implementation: "i"}, "s", store.KVAccount{}, func(time.Time, *store.KVRow) (store.KVChange, error) {
		return store.KVChange{Verb: store.KVPut, Value: full, Form: formSet}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	b.refused(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_SET_ADD, Key: "s", Value: []byte("one more")}, wireerr.QuotaExceeded, "10000 members")
	card("s", maxMembers)
}

func Test15PurgeIdentity(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	twin := agent("w", "i", "2")
	for _, c := range []*Caller{a, twin} {
		for _, scope := range []aetherv1.KVOperation_Scope{aetherv1.KVOperation_SCOPE_GLOBAL_EXCLUSIVE, aetherv1.KVOperation_SCOPE_WORKSPACE_EXCLUSIVE} {
			b.do(c, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_PUT, Scope: scope, Key: "k", Value: []byte("v")})
		}
		b.save(c, "c", "data", 0)
	}
	b.do(a, put("shared", "v"))
	purge := func(target string) *aetherv1.KVOperation {
		return &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_PURGE_IDENTITY, TargetIdentity: target}
	}
	b.refused(a, purge(twin.Identity), wireerr.PermissionDenied, "another identity")
	b.rules["kv:write identity::"+twin.Identity] = acl.Allow
	for _, bad := range []string{"u", strings.Repeat("x::", 400)} {
		b.refused(a, purge(bad), wireerr.InvalidArgument, "target_identity")
	}
	if r := b.do(a, purge("")); r.GetCounterValue() != 3 || !r.GetApplied() {
		t.Errorf("purged %v", r)
	}
	if r := b.do(a, purge(a.Identity)); r.GetCounterValue() != 0 || r.GetApplied() {
		t.Errorf("purged again %v", r)
	}
	b.value(a, "shared", "v")
	if r := b.do(a, purge(twin.Identity)); r.GetCounterValue() != 3 {
		t.Errorf("purged of another %v", r)
	}
	b.rules["kv:write identity::"+a.Identity] = acl.Deny
	b.refused(a, purge(""), wireerr.PermissionDenied, "kv:write")
}

func (b *bench) checkpoint(c *Caller, op *aetherv1.CheckpointOperation) *aetherv1.CheckpointResponse {
	b.t.Helper()
	o, err := b.s.PrepareCheckpoint(c, op)
	if err != nil {
		b.t.Fatalf("%v: %v", op, err)
	}
	r, err := o.Run(context.Background())
	if err != nil || !r.GetSuccess() {
		b.t.Fatalf("%v: %v, %v", op, r, err)
	}
	return r
}

func (b *bench) save(c *Caller, key, data string, ttl int64) *aetherv1.CheckpointResponse {
	b.t.Helper()
	return b.checkpoint(c, &aetherv1.CheckpointOperation{Op: aetherv1.CheckpointOperation_OP_TYPE_SAVE, Key: key, Data: []byte(data), Ttl: ttl})
}

func Test15Checkpoints(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	load := func(c *Caller, key, want string) *aetherv1.CheckpointResponse {
		t.Helper()
		r := b.checkpoint(c, &aetherv1.CheckpointOperation{Op: aetherv1.CheckpointOperation_OP_TYPE_LOAD, Key: key})
		if string(r.GetData()) != want || (r.GetSavedAt() != 0) != (want != "") {
			t.Errorf("%s is %v, want %q", key, r, want)
		}
		return r
	}
	load(a, "k", "")
	saved := b.save(a, "k", "state", 0)
	if at := load(a, "k", "state").GetSavedAt(); at != saved.GetSavedAt() || time.Since(time.Unix(at, 0)).Abs() > time.Minute {
		t.Errorf("saved at %d, %d", saved.GetSavedAt(), at)
	}
	load(agent("w", "i", "2"), "k", "")
	b.save(a, "k2", "by default", -1)
	b.save(a, "k3", "a minute", 60)
	keys := b.checkpoint(a, &aetherv1.CheckpointOperation{Op: aetherv1.CheckpointOperation_OP_TYPE_LIST}).GetKeys()
	if fmt.Sprint(keys) != "[k k2 k3]" {
		t.Errorf("listed %q", keys)
	}
	b.ahead.Store(int64(2 * time.Minute))
	load(a, "k2", "by default")
	load(a, "k3", "")
	b.ahead.Store(int64(2 * time.Hour))
	load(a, "k2", "")
	load(a, "k", "state")
	b.checkpoint(a, &aetherv1.CheckpointOperation{Op: aetherv1.CheckpointOperation_OP_TYPE_DELETE, Key: "k"})
	load(a, "k", "")
	for text, o := range map[string]*aetherv1.CheckpointOperation{
		"op 9":           {Op: 9, Key: "k"},
		"key is missing": {Op: aetherv1.CheckpointOperation_OP_TYPE_LOAD},
		"513 bytes":      {Key: strings.Repeat("k", 513)},
		"data has":       {Key: "k", Data: make([]byte, MaxValue+1)},
		"negative":       {Key: "k", Ttl: -2},
		"hundred years":  {Key: "k", Ttl: math.MaxInt64},
		"zero byte":      {Key: "k\x00"},
	} {
		if _, err := b.s.PrepareCheckpoint(a, o); err == nil || !strings.Contains(err.Message, text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func Test15Snapshot(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	if s := b.s.Snapshot(context.Background(), a); s.GetTruncated() || len(s.GetWorkspaceExclusiveKv())+len(s.GetGlobalExclusiveKv()) > 0 {
		t.Errorf("of nothing: %v", s)
	}
	b.do(a, put("k", "v"))
	b.do(a, op(aetherv1.KVOperation_OP_TYPE_INCREMENT, "n"))
	b.do(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_SET_ADD, Key: "s", Value: []byte("m")})
	b.do(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_PUT, Scope: aetherv1.KVOperation_SCOPE_GLOBAL, Key: "g", Value: []byte("w")})
	b.do(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_PUT, Scope: aetherv1.KVOperation_SCOPE_WORKSPACE_EXCLUSIVE, Key: "own", Value: []byte("w")})
	b.do(agent("w", "j", "1"), put("other", "v"))
	b.do(agent("x", "i", "1"), put("away", "v"))
	s := b.s.Snapshot(context.Background(), a)
	if fmt.Sprintf("%s %s %s %s %v", s.GetKv(), s.GetWorkspaceExclusiveKv(), s.GetGlobalKv(), s.GetGlobalExclusiveKv(), s.GetTruncated()) != "map[k:v n:1] map[k:v n:1] map[g:w] map[g:w] false" { //nolint:staticcheck // clients read either pair
		t.Errorf("got %v", s)
	}
	b.do(a, put("big", strings.Repeat("v", maxSnapshot-8)))
	if s := b.s.Snapshot(context.Background(), a); !s.GetTruncated() || len(s.GetWorkspaceExclusiveKv()) != 3 || len(s.GetGlobalExclusiveKv()) > 0 {
		t.Errorf("of too much: %d, %d, %v", len(s.GetWorkspaceExclusiveKv()), len(s.GetGlobalExclusiveKv()), s.GetTruncated())
	}
}

// A store that is away keeps nobody out.
func Test15SnapshotWithoutStore(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.do(a, put("k", "v"))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if s := b.s.Snapshot(ctx, a); s == nil || !s.GetTruncated() || len(s.GetWorkspaceExclusiveKv()) > 0 {
		t.Errorf("got %v", s)
	}
}

func Test18KeysAreBounded(t *testing.T) {
	t.Parallel()
	b := newBench(t, func(o *Options) { o.Keys, o.Bytes = 3, 1<<20+2<<10 })
	for i := range 3 {
		b.do(a, put(fmt.Sprint("k", i), "v"))
	}
	b.refused(a, put("k3", "v"), wireerr.QuotaExceeded, "as many keys")
	b.refused(agent("w", "j", "1"), put("k", "v"), wireerr.QuotaExceeded, "as many keys")
	if _, err := func() (any, *wireerr.Error) {
		o, err := b.s.PrepareCheckpoint(a, &aetherv1.CheckpointOperation{Key: "c"})
		if err != nil {
			return nil, err
		}
		return o.Run(context.Background())
	}(); err == nil || err.Code != wireerr.QuotaExceeded {
		t.Errorf("a checkpoint beyond: %v", err)
	}
	b.do(agent("x", "i", "1"), put("k", "v"))
	b.do(a, put("k0", strings.Repeat("v", 1<<19)))
	b.refused(a, put("k1", strings.Repeat("v", 1<<20)), wireerr.QuotaExceeded, "bytes")
	b.value(a, "k1", "v")
	b.do(a, op(aetherv1.KVOperation_OP_TYPE_DELETE, "k0"))
	b.do(a, put("k1", strings.Repeat("v", 1<<20)))
}

// away is a store that fails.
type away struct {
	store.KV
	err error
}

func (s away) ChangeKV(context.Context, store.KVSpace, string, store.KVAccount, func(time.Time, *store.KVRow) (store.KVChange, error)) error {
	return s.err
}

func (s away) GetKV(context.Context, store.KVSpace, string) (store.KVRow, bool, error) {
	return store.KVRow{}, false, s.err
}

func (s away) ExpireKV(context.Context) (int64, error) { return 0, s.err }

// What the store cannot do may be tried again; a change of unknown outcome only
// if making it twice does no harm.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	gone := newBench(t, func(o *Options) { o.Store = away{err: errors.New("secret of the database")} })
	unknown := newBench(t, func(o *Options) {
		o.Store = away{err: errors.Join(store.ErrUncertain, errors.New("secret"))}
	})
	for kind := range needs {
		if kind == aetherv1.KVOperation_OP_TYPE_LIST || kind == aetherv1.KVOperation_OP_TYPE_PURGE_IDENTITY {
			continue
		}
		o := op(kind, "k")
		o.Value = []byte("v")
		_, err := gone.try(a, o)
		if err == nil || err.Code != wireerr.Unavailable || !err.Retryable || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", kind, err)
		}
		_, err = unknown.try(a, o)
		if err == nil || err.Details["outcome"] != "unknown" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v: %v", kind, err)
		}
		if again := kind == aetherv1.KVOperation_OP_TYPE_PUT || kind == aetherv1.KVOperation_OP_TYPE_DELETE || kind == aetherv1.KVOperation_OP_TYPE_GET || kind == aetherv1.KVOperation_OP_TYPE_SET_CARD; err != nil && err.Retryable != again {
			t.Errorf("%v may be repeated: %v", kind, err.Retryable)
		}
	}
}
