package kv

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/sqlite"
	"github.com/aether-gateway/gateway/internal/wireerr"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/store/sqlite/sqlitetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a service on an embedded store with a clock of the test.
type bench struct {
	t     *testing.T
	s     *Service
	store store.KV
	ahead atomic.Int64
	rules rules
}

// rules are denials and allowances of names, by action.
type rules map[string]acl.Effect

func (r rules) EffectOn(_ string, action acl.Action, name string) acl.Effect {
	return r[action.String()+" "+name]
}

// people are users, each in workspace w.
type people []string

func (p people) InWorkspace(user, ws string) bool { return ws == "w" && slices.Contains(p, user) }
func (p people) InAny(user string, set acl.WorkspaceSet) bool {
	return set.Covers("w") && slices.Contains(p, user)
}
func (p people) Barred(string, string) bool { return false }

type spaces []string

func (s spaces) Check(name string) (uint32, bool) { return 0, slices.Contains(s, name) }

func newBench(t *testing.T, change func(*Options)) *bench {
	t.Helper()
	b := &bench{t: t, rules: rules{}}
	file := sqlitetest.Open(t, filepath.Join(t.TempDir(), "aether.db"))
	now := func() time.Time { return time.Now().Add(time.Duration(b.ahead.Load())) }
	st, err := sqlite.Open(context.Background(), file, sqlite.Options{Now: now})
	if err != nil {
		t.Fatal(err)
	}
	b.store = st
	o := Options{Store: st, Rules: b.rules, Members: people{"u"}, Spaces: spaces{"w", "x"}, CheckpointTTL: time.Hour, ExpireEvery: time.Hour}
	if change != nil {
		change(&o)
	}
	b.s = New(o)
	t.Cleanup(func() {
		b.s.Close()
		_ = file.Close()
	})
	return b
}

func agent(ws, impl, spec string) *Caller {
	a, err := address.Agent(ws, impl, spec)
	if err != nil {
		panic(err)
	}
	return &Caller{Principal: acl.Principal{Kind: acl.Agent, Address: a, Workspace: ws, Workspaces: acl.Workspaces(ws)}, Identity: a.String(), Implementation: impl}
}

func service(impl string, covers acl.WorkspaceSet) *Caller {
	a, err := address.Service(impl, "1")
	if err != nil {
		panic(err)
	}
	return &Caller{Principal: acl.Principal{Kind: acl.Service, Address: a, Workspaces: covers}, Identity: a.String(), Implementation: impl}
}

func (b *bench) try(c *Caller, op *aetherv1.KVOperation) (*aetherv1.KVResponse, *wireerr.Error) {
	o, err := b.s.Prepare(c, op)
	if err != nil {
		return nil, err
	}
	return o.Run(context.Background())
}

func (b *bench) do(c *Caller, op *aetherv1.KVOperation) *aetherv1.KVResponse {
	b.t.Helper()
	r, err := b.try(c, op)
	if err != nil {
		b.t.Fatalf("%v: %v", op, err)
	}
	if !r.GetSuccess() {
		b.t.Fatalf("%v: no success", op)
	}
	return r
}

func (b *bench) refused(c *Caller, op *aetherv1.KVOperation, code wireerr.Code, text string) {
	b.t.Helper()
	r, err := b.try(c, op)
	if err == nil || err.Code != code || !strings.Contains(err.Message, text) {
		b.t.Errorf("%.200v: %.100v, %v, want %s with %q", op, r, err, code, text)
	}
}

func put(key, value string) *aetherv1.KVOperation {
	return &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_PUT, Key: key, Value: []byte(value)}
}

func get(key string) *aetherv1.KVOperation { return &aetherv1.KVOperation{Key: key} }

func (b *bench) value(c *Caller, key, want string) {
	b.t.Helper()
	if got := b.do(c, get(key)).GetValue(); string(got) != want {
		b.t.Errorf("%s is %.60q, want %.60q", key, got, want)
	}
}

func op(kind aetherv1.KVOperation_OpType, key string) *aetherv1.KVOperation {
	return &aetherv1.KVOperation{Op: kind, Key: key}
}

var a = agent("w", "i", "1")

func Test15PutGetDelete(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	if r := b.do(a, get("k")); r.GetValue() != nil {
		t.Errorf("a missing key: %v", r)
	}
	b.do(a, put("k", "v"))
	b.value(a, "k", "v")
	big := strings.Repeat("x", MaxValue)
	b.do(a, put(strings.Repeat("k", MaxKey), big))
	b.value(a, strings.Repeat("k", MaxKey), big)
	b.do(a, put("k", ""))
	b.value(a, "k", "")
	if !b.do(a, op(aetherv1.KVOperation_OP_TYPE_DELETE, "k")).GetApplied() || b.do(a, op(aetherv1.KVOperation_OP_TYPE_DELETE, "k")).GetApplied() {
		t.Error("deleted not once")
	}
}

// Who shares what, scope by scope: the same implementation, workspace, user and
// identity, and nobody else.
func Test15Scopes(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	type view struct {
		who  *Caller
		user string
		ws   string
	}
	in := func(c *Caller, user string) view { return view{c, user, ""} }
	other := agent("w", "j", "1")
	twin := agent("w", "i", "2")
	away := agent("x", "i", "1")
	sv := view{service("i", acl.All()), "u", "w"}
	svx := view{service("i", acl.All()), "u", "x"}
	for scope, c := range map[aetherv1.KVOperation_Scope]struct{ shares, apart []view }{
		aetherv1.KVOperation_SCOPE_GLOBAL:                {[]view{in(twin, ""), in(away, ""), sv, svx}, []view{in(other, "")}},
		aetherv1.KVOperation_SCOPE_WORKSPACE:             {[]view{in(twin, ""), sv}, []view{in(away, ""), in(other, ""), svx}},
		aetherv1.KVOperation_SCOPE_UNSPECIFIED:           {[]view{in(twin, ""), sv}, []view{in(away, ""), in(other, ""), svx}},
		aetherv1.KVOperation_SCOPE_USER:                  {[]view{in(twin, "u"), in(away, "u"), sv}, []view{in(twin, "v"), in(other, "u")}},
		aetherv1.KVOperation_SCOPE_USER_WORKSPACE:        {[]view{in(twin, "u"), sv}, []view{in(twin, "v"), in(other, "u"), in(away, "u"), svx}},
		aetherv1.KVOperation_SCOPE_GLOBAL_EXCLUSIVE:      {nil, []view{in(twin, ""), in(away, ""), in(other, ""), sv}},
		aetherv1.KVOperation_SCOPE_WORKSPACE_EXCLUSIVE:   {nil, []view{in(twin, ""), in(away, ""), in(other, ""), sv}},
		aetherv1.KVOperation_SCOPE_USER_SHARED:           {[]view{in(twin, "u"), in(other, "u"), sv, svx}, nil},
		aetherv1.KVOperation_SCOPE_USER_WORKSPACE_SHARED: {[]view{in(twin, "u"), in(other, "u"), sv}, []view{in(twin, "v"), in(away, "u"), svx}},
	} {
		ask := func(v view, kind aetherv1.KVOperation_OpType) *aetherv1.KVOperation {
			return &aetherv1.KVOperation{Op: kind, Scope: scope, Key: "k", UserId: v.user, Workspace: v.ws, Value: []byte("of " + scope.String())}
		}
		b.do(a, ask(in(a, "u"), aetherv1.KVOperation_OP_TYPE_PUT))
		for i, v := range append(c.shares, in(a, "u")) {
			if got := b.do(v.who, ask(v, aetherv1.KVOperation_OP_TYPE_GET)).GetValue(); string(got) != "of "+scope.String() {
				t.Errorf("%v: %d does not see it: %q", scope, i, got)
			}
		}
		for i, v := range c.apart {
			if got := b.do(v.who, ask(v, aetherv1.KVOperation_OP_TYPE_GET)).GetValue(); got != nil {
				t.Errorf("%v: %d sees %q", scope, i, got)
			}
		}
		// None of the other scopes has it.
		b.do(a, ask(in(a, "u"), aetherv1.KVOperation_OP_TYPE_DELETE))
		for other := range scopeNames {
			if r := b.do(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_LIST, Scope: other, UserId: "u"}); len(r.GetKeys()) > 0 {
				t.Errorf("%v shows %q of %v", other, r.GetKeys(), scope)
			}
		}
	}
}

func Test15WhoMay(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	for _, kind := range acl.Kinds() {
		c := &Caller{Principal: acl.Principal{Kind: kind, Workspace: "w", Workspaces: acl.Workspaces("w")}, Identity: "x::" + kind.String(), Implementation: "i"}
		switch kind {
		case acl.User, acl.Orchestrator, acl.Bridge:
			b.refused(c, get("k"), wireerr.InvalidPrincipal, "no keys")
			if _, err := b.s.PrepareCheckpoint(c, &aetherv1.CheckpointOperation{Key: "k"}); err == nil || err.Code != wireerr.InvalidPrincipal {
				t.Errorf("checkpoints of %s: %v", kind, err)
			}
			b.refused(c, op(aetherv1.KVOperation_OP_TYPE_PURGE_IDENTITY, ""), wireerr.InvalidPrincipal, "no keys")
		default:
			b.do(c, put("of "+kind.String(), "v"))
		}
	}
	// Engines and bridges of metrics have keys of their own.
	engine := &Caller{Principal: acl.Principal{Kind: acl.WorkflowEngine, Workspaces: acl.Workspaces("w")}, Identity: "wfe::1", Implementation: "i"}
	if keys := b.do(engine, op(aetherv1.KVOperation_OP_TYPE_LIST, "")).GetKeys(); len(keys) != 1 || keys[0] != "of workflow_engine" {
		t.Errorf("an engine sees %q", keys)
	}
	named := func(ws string) *aetherv1.KVOperation { return &aetherv1.KVOperation{Key: "k", Workspace: ws} }
	b.do(a, named("w"))
	b.refused(a, named("x"), wireerr.PermissionDenied, "another workspace")
	b.refused(service("i", acl.All()), named(""), wireerr.InvalidArgument, "workspace is missing")
	b.refused(service("i", acl.Workspaces("w", "x")), named(""), wireerr.InvalidArgument, "workspace is missing")
	b.do(service("i", acl.Workspaces("w")), named(""))
	b.refused(service("i", acl.Workspaces("w")), named("x"), wireerr.PermissionDenied, "cover")
	b.refused(service("i", acl.WorkspaceSet{}), named("w"), wireerr.PermissionDenied, "cover")
	b.refused(service("i", acl.All()), named("gone"), wireerr.NotFound, "does not exist")
	shared := func(user string) *aetherv1.KVOperation {
		return &aetherv1.KVOperation{Key: "k", UserId: user, Scope: aetherv1.KVOperation_SCOPE_USER_SHARED}
	}
	b.do(a, shared("u"))
	b.refused(a, shared("stranger"), wireerr.PermissionDenied, "no member")
	b.refused(agent("x", "i", "1"), shared("u"), wireerr.PermissionDenied, "no member")
	b.do(service("i", acl.Workspaces("w")), shared("u"))
	b.refused(service("i", acl.Workspaces("x")), shared("u"), wireerr.PermissionDenied, "no member")
}

func Test15BadInput(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	long := strings.Repeat("é", MaxKey/2)
	b.do(a, put(long, "v"))
	b.refused(a, put(long+"x", "v"), wireerr.PayloadTooLarge, "513 bytes, 512")
	b.refused(a, put("k", strings.Repeat("v", MaxValue+1)), wireerr.PayloadTooLarge, "1048577 bytes")
	b.refused(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_COMPARE_AND_SET, Key: "k", ExpectedValue: make([]byte, MaxValue+1)}, wireerr.PayloadTooLarge, "expected_value")
	b.refused(a, put("", "v"), wireerr.InvalidArgument, "key is missing")
	b.refused(a, put("a\x00b", "v"), wireerr.InvalidArgument, "zero byte")
	b.refused(a, op(99, "k"), wireerr.InvalidArgument, "op 99")
	b.refused(a, op(-1, "k"), wireerr.InvalidArgument, "op -1")
	for _, scope := range []aetherv1.KVOperation_Scope{9, 100, -1, 258} {
		b.refused(a, &aetherv1.KVOperation{Key: "k", Scope: scope}, wireerr.InvalidArgument, "is unknown")
	}
	for ttl, text := range map[int64]string{-1: "negative", -1 << 63: "negative", maxTTL + 1: "hundred", 1<<63 - 1: "hundred"} {
		o := put("k", "v")
		o.Ttl = ttl
		b.refused(a, o, wireerr.InvalidArgument, text)
	}
	for _, user := range []string{"", "a b", "us::u::1", strings.Repeat("u", 200), "*"} {
		b.refused(a, &aetherv1.KVOperation{Key: "k", UserId: user, Scope: aetherv1.KVOperation_SCOPE_USER}, wireerr.InvalidArgument, "user_id")
	}
	b.refused(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_LIST, Limit: -1}, wireerr.InvalidArgument, "limit")
	b.refused(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_INCREMENT, Key: "n", DeltaValue: -1}, wireerr.InvalidArgument, "delta_value")
	b.refused(a, op(aetherv1.KVOperation_OP_TYPE_SET_ADD, "s"), wireerr.InvalidArgument, "value is missing")
	b.refused(a, &aetherv1.KVOperation{Key: "k", TargetIdentity: "ag::w::i::2"}, wireerr.PermissionDenied, "another identity")
	b.refused(a, &aetherv1.KVOperation{Key: "k", Authorization: &aetherv1.AuthorizationContext{GrantId: "g"}}, wireerr.GrantInvalid, "no such grant")
	b.value(a, "k", "")
}

func Test15Expiry(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	o := put("k", "v")
	o.Ttl = 60
	b.do(a, o)
	b.ahead.Store(int64(59 * time.Second))
	b.value(a, "k", "v")
	b.ahead.Store(int64(61 * time.Second))
	b.value(a, "k", "")
	if !b.do(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_SET_NX, Key: "k", Value: []byte("new"), Ttl: 60}).GetApplied() {
		t.Error("an expired key stands in the way")
	}
	b.do(a, put("k", "for ever"))
	// A counter lives as long as it was made for: it is not prolonged by being
	// counted.
	for range 3 {
		b.do(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_INCREMENT, Key: "n", Ttl: 60})
		b.ahead.Add(int64(25 * time.Second))
	}
	b.value(a, "n", "")
	b.value(a, "k", "for ever")
	n := b.do(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_INCREMENT, Key: "n", Ttl: maxTTL})
	if n.GetCounterValue() != 1 {
		t.Errorf("it goes on at %d", n.GetCounterValue())
	}
}

func (b *bench) list(c *Caller, o *aetherv1.KVOperation) (keys []string, pages int) {
	b.t.Helper()
	o.Op = aetherv1.KVOperation_OP_TYPE_LIST
	for {
		r := b.do(c, o)
		pages++
		keys = append(keys, r.GetKeys()...)
		if r.GetHasMore() != (r.GetNextCursor() != "") {
			b.t.Fatalf("has_more %v, cursor %q", r.GetHasMore(), r.GetNextCursor())
		}
		if !r.GetHasMore() {
			return keys, pages
		}
		o.Cursor = r.GetNextCursor()
	}
}

func Test15ListPages(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	var want []string
	for i := range 25 {
		key := fmt.Sprintf("p/%02d", i)
		want = append(want, key)
		b.do(a, put(key, key))
	}
	for _, key := range []string{"p", "p%", "p_00", "q/1"} {
		b.do(a, put(key, key))
	}
	for limit, pages := range map[int32]int{0: 1, 1: 25, 7: 4, 25: 1, 24: 2, 1 << 30: 1} {
		if got, n := b.list(a, &aetherv1.KVOperation{Key: "p/", Limit: limit}); !slices.Equal(got, want) || n != pages {
			t.Errorf("limit %d: %q on %d pages", limit, got, n)
		}
	}
	if r := b.do(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_LIST, Key: "p/0"}); len(r.GetKvMap()) != 10 || string(r.GetKvMap()["p/03"]) != "p/03" {
		t.Errorf("kv_map has %d", len(r.GetKvMap()))
	}
	for prefix, n := range map[string]int{"p%": 1, "p_": 1, "": 29, "P": 0, "p": 28} {
		if got, _ := b.list(a, &aetherv1.KVOperation{Key: prefix}); len(got) != n {
			t.Errorf("prefix %q: %q", prefix, got)
		}
	}
	// Large values make small pages, which a client can take.
	for i := range 3 {
		b.do(a, put(fmt.Sprint("big", i), strings.Repeat("v", MaxValue)))
	}
	if got, n := b.list(a, &aetherv1.KVOperation{Key: "big"}); len(got) != 3 || n != 3 {
		t.Errorf("%q on %d pages", got, n)
	}
	// A cursor belongs to its listing.
	first := b.do(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_LIST, Key: "p/", Limit: 1}).GetNextCursor()
	for what, o := range map[string]*aetherv1.KVOperation{
		"another prefix":   {Key: "p", Cursor: first},
		"another scope":    {Key: "p/", Scope: aetherv1.KVOperation_SCOPE_GLOBAL, Cursor: first},
		"nonsense":         {Key: "p/", Cursor: "nonsense"},
		"no base64":        {Key: "p/", Cursor: "!!"},
		"too long":         {Key: "p/", Cursor: strings.Repeat("A", 10_000)},
		"cut":              {Key: "p/", Cursor: first[:8]},
		"with a zero byte": {Key: "p/", Cursor: cursorOf(strings.Join([]string{"2", "w", "i", "", "p/"}, "\x00"), "p/\x00")},
		"not UTF-8":        {Key: "p/", Cursor: cursorOf(strings.Join([]string{"2", "w", "i", "", "p/"}, "\x00"), "p/\xff")},
	} {
		o.Op = aetherv1.KVOperation_OP_TYPE_LIST
		if _, err := b.try(a, o); err == nil || err.Code != wireerr.InvalidArgument || !strings.Contains(err.Message, "cursor") {
			t.Errorf("a cursor %s: %v", what, err)
		}
	}
	b.refused(agent("w", "j", "1"), &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_LIST, Key: "p/", Cursor: first}, wireerr.InvalidArgument, "cursor")
}

func Test15Rules(t *testing.T) {
	t.Parallel()
	b := newBench(t, nil)
	b.do(a, put("k", "v"))
	b.do(a, put("secret", "s"))
	b.rules["kv:read workspace::w::i::secret"] = acl.Deny
	b.refused(a, get("secret"), wireerr.PermissionDenied, "kv:read")
	if keys, _ := b.list(a, &aetherv1.KVOperation{}); !slices.Equal(keys, []string{"k"}) {
		t.Errorf("listed %q", keys)
	}
	if s := b.s.Snapshot(context.Background(), a); len(s.GetWorkspaceExclusiveKv()) != 1 {
		t.Errorf("a snapshot has %v", s)
	}
	// What would tell the value is denied as well, what only changes it is not.
	b.refused(a, op(aetherv1.KVOperation_OP_TYPE_COMPARE_AND_SET, "secret"), wireerr.PermissionDenied, "kv:read")
	b.refused(a, op(aetherv1.KVOperation_OP_TYPE_INCREMENT, "secret"), wireerr.PermissionDenied, "kv:read")
	b.do(a, put("secret", "t"))
	b.rules["kv:write workspace::w::i::k"] = acl.Deny
	for kind, actions := range needs {
		if len(actions) == 1 && actions[0] == acl.ActionKVRead || kind == aetherv1.KVOperation_OP_TYPE_PURGE_IDENTITY {
			continue
		}
		o := op(kind, "k")
		o.Value = []byte("x")
		b.refused(a, o, wireerr.PermissionDenied, "kv:write")
	}
	b.value(a, "k", "v")
	b.rules["kv:read workspace::w::i"] = acl.Deny
	b.refused(a, &aetherv1.KVOperation{Op: aetherv1.KVOperation_OP_TYPE_LIST}, wireerr.PermissionDenied, "kv:read")
	if s := b.s.Snapshot(context.Background(), a); s.GetWorkspaceExclusiveKv() != nil || s.GetTruncated() {
		t.Errorf("a snapshot has %v", s)
	}
	for scope, name := range map[aetherv1.KVOperation_Scope]string{
		aetherv1.KVOperation_SCOPE_GLOBAL:                "global::i::k",
		aetherv1.KVOperation_SCOPE_USER:                  "user::i::u::k",
		aetherv1.KVOperation_SCOPE_USER_WORKSPACE:        "user_workspace::w::i::u::k",
		aetherv1.KVOperation_SCOPE_GLOBAL_EXCLUSIVE:      "global_exclusive::ag::w::i::1::k",
		aetherv1.KVOperation_SCOPE_WORKSPACE_EXCLUSIVE:   "workspace_exclusive::w::ag::w::i::1::k",
		aetherv1.KVOperation_SCOPE_USER_SHARED:           "user_shared::u::k",
		aetherv1.KVOperation_SCOPE_USER_WORKSPACE_SHARED: "user_workspace_shared::w::u::k",
	} {
		b.rules["kv:read "+name] = acl.Deny
		b.refused(a, &aetherv1.KVOperation{Key: "k", UserId: "u", Scope: scope}, wireerr.PermissionDenied, "kv:read")
	}
	b.rules["kv:read checkpoint::ag::w::i::1::k"] = acl.Deny
	if _, err := b.s.PrepareCheckpoint(a, &aetherv1.CheckpointOperation{Op: aetherv1.CheckpointOperation_OP_TYPE_LOAD, Key: "k"}); err == nil || err.Code != wireerr.PermissionDenied {
		t.Errorf("a checkpoint: %v", err)
	}
}

func TestFailureTellsWhy(t *testing.T) {
	t.Parallel()
	e := Failure(refusal(wireerr.Unavailable, "away").After(time.Second).With("outcome", "unknown"))
	if e.Code != wireerr.KVError || e.Message != "away" || !e.Retryable || e.RetryAfter != time.Second || e.Details["code"] != "ERR_UNAVAILABLE" || e.Details["outcome"] != "unknown" {
		t.Errorf("%+v", e)
	}
	if e := Failure(refusal(wireerr.InvalidArgument, "no")); e.Retryable {
		t.Error("retryable")
	}
}

func FuzzCursor(f *testing.F) {
	f.Add("", "l", "")
	f.Add(cursorOf("l", "key"), "l", "k")
	f.Add("AAAAAAAAAAAA", "l", "")
	f.Fuzz(func(t *testing.T, cursor, listing, prefix string) {
		after, err := parseCursor(cursor, listing, prefix)
		if err != nil || cursor == "" {
			return
		}
		if !strings.HasPrefix(after, prefix) || cursorOf(listing, after) != cursor {
			t.Errorf("cursor %q of %q leads to %q", cursor, listing, after)
		}
	})
}
