package grants

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/store"
)

// What clients ask for and must not get, with the code of the refusal.
func Test17BadExchanges(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s, u := w.service(t, nil), w.caller(t, userU, "w", "v")
	w.out[[2]string{"u", "v"}] = true
	now := w.clock().Unix()
	type request = aetherv1.AuthorityGrantExchangeRequest
	pattern := func(kind string, patterns ...string) func(*request) {
		return func(r *request) {
			r.ResourceScope = []*aetherv1.ACLAuthorityGrantResourceScopeEntry{{ResourceType: kind, Patterns: patterns}}
		}
	}
	for name, c := range map[string]struct {
		change func(*request)
		code   string
	}{
		"somebody else's session":   {func(r *request) { r.SourceSessionId = "session of somebody" }, "ERR_PERMISSION_DENIED"},
		"no such workspace":         {func(r *request) { r.WorkspaceScope = []string{"x"} }, "ERR_GRANT_INVALID"},
		"a workspace that is lost":  {func(r *request) { r.WorkspaceScope = []string{"w", "v"} }, "ERR_GRANT_INVALID"},
		"all workspaces":            {func(r *request) { r.WorkspaceScope = []string{"*"} }, "ERR_GRANT_INVALID"},
		"no name of a workspace":    {func(r *request) { r.WorkspaceScope = []string{"a b"} }, "ERR_INVALID_ARGUMENT"},
		"too many workspaces":       {func(r *request) { r.WorkspaceScope = make([]string, maxWorkspaces+1) }, "ERR_INVALID_ARGUMENT"},
		"no operation":              {func(r *request) { r.OperationScope = []string{"send", "sned"} }, "ERR_INVALID_ARGUMENT"},
		"no level":                  {func(r *request) { r.MaxAccessLevel = 25 }, "ERR_INVALID_ARGUMENT"},
		"a negative level":          {func(r *request) { r.MaxAccessLevel = math.MinInt32 }, "ERR_INVALID_ARGUMENT"},
		"negative hops":             {func(r *request) { r.RemainingHops = -1 }, "ERR_INVALID_ARGUMENT"},
		"too many hops":             {func(r *request) { r.RemainingHops = math.MaxInt32 }, "ERR_INVALID_ARGUMENT"},
		"hops that may not be":      {func(r *request) { r.MayDelegate = false }, "ERR_INVALID_ARGUMENT"},
		"expired":                   {func(r *request) { r.ExpiresAt = now }, "ERR_INVALID_ARGUMENT"},
		"before time began":         {func(r *request) { r.ExpiresAt = -1 }, "ERR_INVALID_ARGUMENT"},
		"for ever":                  {func(r *request) { r.ExpiresAt = math.MaxInt64 }, "ERR_INVALID_ARGUMENT"},
		"too long":                  {func(r *request) { r.ExpiresAt = now + 31*24*3600 }, "ERR_INVALID_ARGUMENT"},
		"renewable for too long":    {func(r *request) { r.RenewableUntil = now + 31*24*3600 }, "ERR_INVALID_ARGUMENT"},
		"renewable into the past":   {func(r *request) { r.RenewableUntil = now + 1 }, "ERR_INVALID_ARGUMENT"},
		"no audience of its type":   {func(r *request) { r.AudienceType = "everybody" }, "ERR_INVALID_ARGUMENT"},
		"an audience of another":    {func(r *request) { r.AudienceType = "service" }, "ERR_INVALID_ARGUMENT"},
		"an audience without name":  {func(r *request) { r.AudienceId = "" }, "ERR_INVALID_ARGUMENT"},
		"an audience without type":  {func(r *request) { r.AudienceType = "" }, "ERR_INVALID_ARGUMENT"},
		"a pattern as an audience":  {func(r *request) { r.AudienceId = "ag::w::i::*" }, "ERR_INVALID_ARGUMENT"},
		"a session that is not":     {func(r *request) { r.AudienceType, r.AudienceId = "session", "none" }, "ERR_GRANT_INVALID"},
		"a resource of no type":     {pattern("file", "x"), "ERR_INVALID_ARGUMENT"},
		"no pattern":                {pattern("address"), "ERR_INVALID_ARGUMENT"},
		"a wildcard in a segment":   {pattern("address", "ag::w::bot*"), "ERR_INVALID_ARGUMENT"},
		"an empty pattern":          {pattern("address", ""), "ERR_INVALID_ARGUMENT"},
		"a long reason":             {func(r *request) { r.Reason = strings.Repeat("x", maxReason+1) }, "ERR_INVALID_ARGUMENT"},
		"much metadata":             {func(r *request) { r.Metadata = map[string]string{"k": strings.Repeat("x", maxMetaBytes)} }, "ERR_INVALID_ARGUMENT"},
		"a zero byte":               {func(r *request) { r.Metadata = map[string]string{"k": "\x00"} }, "ERR_INVALID_ARGUMENT"},
		"an audience that is a tb":  {func(r *request) { r.AudienceType, r.AudienceId = "task", "tb::w::i" }, "ERR_INVALID_ARGUMENT"},
		"an audience without an id": {func(r *request) { r.AudienceType, r.AudienceId = "task", "" }, "ERR_INVALID_ARGUMENT"},
	} {
		if answer := s.asks(t, u, exchangeOp(c.change)); answer.GetError() != c.code {
			t.Errorf("%s: %v, want %s", name, answer, c.code)
		}
	}
	for _, op := range []aetherv1.AuthorityGrantOperation_OpType{0, 1, 3, 7, 8, 9, -1} {
		if answer := s.asks(t, u, &aetherv1.AuthorityGrantOperation{Op: op}); answer.GetError() != "ERR_INVALID_ARGUMENT" {
			t.Errorf("op %d without a request: %v", op, answer)
		}
	}
	own := s.asks(t, u, &aetherv1.AuthorityGrantOperation{Op: aetherv1.AuthorityGrantOperation_OP_TYPE_LIST_GRANTS_ON_ME})
	if own.GetTotal() != 0 {
		t.Errorf("made all the same: %v", own)
	}
}

// A derived grant is never wider than its parent, in no dimension.
func Test17WiderThanTheParent(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s, u, a, b := w.service(t, nil), w.caller(t, userU, "w"), w.caller(t, agentA), w.caller(t, agentB)
	now := w.clock().Unix()
	parent := s.makes(t, u, exchangeOp(func(r *aetherv1.AuthorityGrantExchangeRequest) {
		r.OperationScope, r.MaxAccessLevel, r.ExpiresAt, r.RenewableUntil = []string{"send"}, 20, now+100, now+200
		r.ResourceScope = []*aetherv1.ACLAuthorityGrantResourceScopeEntry{{ResourceType: "topic", Patterns: []string{"ag::w::i::*", "ga::w"}}}
	})).GetGrantId()
	type request = aetherv1.AuthorityGrantDeriveRequest
	patterns := func(list ...string) func(*request) {
		return func(r *request) {
			r.ResourceScope = []*aetherv1.ACLAuthorityGrantResourceScopeEntry{{ResourceType: "address", Patterns: list}}
		}
	}
	for name, c := range map[string]struct {
		delegate string
		change   func(*request)
		code     string
	}{
		"a workspace":          {agentB, func(r *request) { r.WorkspaceScope = []string{"v"} }, "ERR_GRANT_INVALID"},
		"all workspaces":       {agentB, func(r *request) { r.WorkspaceScope = []string{"*"} }, "ERR_GRANT_INVALID"},
		"an operation":         {agentB, func(r *request) { r.OperationScope = []string{"send", "kv:read"} }, "ERR_GRANT_INVALID"},
		"all operations":       {agentB, func(r *request) { r.OperationScope = []string{"*"} }, "ERR_GRANT_INVALID"},
		"the level":            {agentB, func(r *request) { r.MaxAccessLevel = 30 }, "ERR_GRANT_INVALID"},
		"all addresses":        {agentB, patterns("*"), "ERR_GRANT_INVALID"},
		"more addresses":       {agentB, patterns("ag::w::*"), "ERR_GRANT_INVALID"},
		"another address":      {agentB, patterns("ag::w::i::b", "ga::v"), "ERR_GRANT_INVALID"},
		"the expiry":           {agentB, func(r *request) { r.ExpiresAt = now + 101 }, "ERR_GRANT_INVALID"},
		"the renewal":          {agentB, func(r *request) { r.RenewableUntil = now + 201 }, "ERR_GRANT_INVALID"},
		"the renewal for ever": {agentB, func(r *request) { r.RenewableUntil = math.MaxInt64 }, "ERR_INVALID_ARGUMENT"},
		"the hops":             {agentB, func(r *request) { r.MayDelegate, r.RemainingHops = true, 3 }, "ERR_GRANT_INVALID"},
		"the audience":         {agentB, func(r *request) { r.AudienceType, r.AudienceId = "agent", agentC }, "ERR_GRANT_INVALID"},
		"no delegate":          {"", nil, "ERR_INVALID_ARGUMENT"},
		"no identity":          {"ag::w::i", nil, "ERR_INVALID_ARGUMENT"},
		"back to itself":       {agentA, nil, "ERR_GRANT_INVALID"},
		"back to the subject":  {"", func(r *request) { r.Delegate = &aetherv1.PrincipalRef{PrincipalType: "USER", PrincipalId: "u"} }, "ERR_GRANT_INVALID"},
		"a window of it":       {"", func(r *request) { r.Delegate = &aetherv1.PrincipalRef{PrincipalType: "user", PrincipalId: "us::u::w9"} }, "ERR_GRANT_INVALID"},
	} {
		if answer := s.asks(t, a, deriveOp(parent, c.delegate, c.change)); answer.GetError() != c.code {
			t.Errorf("%s: %v, want %s", name, answer, c.code)
		}
	}
	if answer := s.asks(t, b, deriveOp(parent, agentC, nil)); answer.GetError() != "ERR_GRANT_INVALID" || !strings.Contains(answer.GetMessage(), "no such grant") {
		t.Errorf("of somebody else's grant: %v", answer)
	}
	// What is as wide is allowed, and what is not said is the parent's.
	child := s.makes(t, a, deriveOp(parent, agentB, func(r *request) {
		r.MayDelegate, r.RemainingHops, r.ExpiresAt, r.RenewableUntil = true, 2, now+100, now+200
	}))
	if got := child.GetResourceScope(); len(got) != 1 || len(got[0].GetPatterns()) != 2 || child.GetMaxAccessLevel() != 20 || child.GetOperationScope()[0] != "send" || child.GetWorkspaceScope()[0] != "w" {
		t.Errorf("derived %v", child)
	}
	target := s.makes(t, b, &aetherv1.AuthorityGrantOperation{Op: aetherv1.AuthorityGrantOperation_OP_TYPE_DERIVE_FOR_TARGET, DeriveForTargetRequest: &aetherv1.AuthorityGrantDeriveForTargetRequest{
		ParentGrantId: child.GetGrantId(), Target: &aetherv1.PrincipalRef{PrincipalType: "agent", PrincipalId: agentC},
	}})
	c := w.caller(t, agentC)
	for to, want := range map[string]string{"ag::w::i::x": "", "ga::w": "", "ag::w::other::x": "ERR_GRANT_INVALID", "gu::w": "ERR_GRANT_INVALID"} {
		if code := s.sends(t, c, target.GetGrantId(), to, "w"); code != want {
			t.Errorf("to %s: %q, want %q", to, code, want)
		}
	}
	// The chain ends with its first grant.
	w.forward(100 * time.Second)
	if code := s.sends(t, c, target.GetGrantId(), "ga::w", "w"); code != "ERR_GRANT_INVALID" {
		t.Errorf("expired: %q", code)
	}
}

// Renewals: by those whom the grant concerns, until it may be no longer.
func Test17Renewals(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s, u, a, b := w.service(t, nil), w.caller(t, userU, "w"), w.caller(t, agentA), w.caller(t, agentB)
	now := w.clock().Unix()
	id := s.makes(t, u, exchangeOp(func(r *aetherv1.AuthorityGrantExchangeRequest) { r.ExpiresAt, r.RenewableUntil = now+100, now+200 })).GetGrantId()
	renew := func(c *Caller, at int64, by int32) *aetherv1.AuthorityGrantResponse {
		t.Helper()
		return s.asks(t, c, &aetherv1.AuthorityGrantOperation{Op: aetherv1.AuthorityGrantOperation_OP_TYPE_RENEW, RenewRequest: &aetherv1.ACLRenewAuthorityGrantRequest{GrantId: id, ExpiresAt: at, ExtendSeconds: by}})
	}
	for _, c := range []struct {
		as   *Caller
		at   int64
		by   int32
		code string
		want int64
	}{
		{b, now + 150, 0, "ERR_NOT_FOUND", 0},
		{a, 0, 0, "ERR_INVALID_ARGUMENT", 0},
		{a, now + 150, 50, "ERR_INVALID_ARGUMENT", 0},
		{a, 0, -5, "ERR_INVALID_ARGUMENT", 0},
		{a, 0, math.MinInt32, "ERR_INVALID_ARGUMENT", 0},
		{a, -5, 0, "ERR_INVALID_ARGUMENT", 0},
		{a, math.MaxInt64, 0, "ERR_INVALID_ARGUMENT", 0},
		{a, 0, math.MaxInt32, "ERR_GRANT_INVALID", 0},
		{a, now + 201, 0, "ERR_GRANT_INVALID", 0},
		{a, now + 100, 0, "ERR_INVALID_ARGUMENT", 0},
		{a, now + 50, 0, "ERR_INVALID_ARGUMENT", 0},
		{a, now + 150, 0, "", now + 150},
		{u, 0, 50, "", now + 200},
		{u, 0, 1, "ERR_GRANT_INVALID", 0},
	} {
		answer := renew(c.as, c.at, c.by)
		if answer.GetError() != c.code || c.want != 0 && (answer.GetGrant().GetExpiresAt() != c.want || answer.GetGrant().GetRenewedAt() == 0) {
			t.Errorf("to %d or by %d: %v", c.at-now, c.by, answer)
		}
	}
	w.forward(200 * time.Second)
	if answer := renew(u, now+300, 0); answer.GetError() != "ERR_GRANT_INVALID" {
		t.Errorf("expired and renewed: %v", answer)
	}
}

// One subject has so many grants and no more; what others have is theirs.
func Test17ManyGrants(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s := w.service(t, func(o *Options) { o.MaxPerSubject = 20 })
	u, v := w.caller(t, userU, "w"), w.caller(t, "us::v::1", "w")
	batch := &aetherv1.AuthorityGrantBatchExchangeRequest{}
	for range 21 {
		batch.Requests = append(batch.Requests, exchangeOp(nil).GetExchangeRequest())
	}
	op := &aetherv1.AuthorityGrantOperation{Op: aetherv1.AuthorityGrantOperation_OP_TYPE_BATCH_EXCHANGE, BatchExchangeRequest: batch}
	if answer := s.asks(t, u, op); answer.GetError() != "ERR_QUOTA_EXCEEDED" || len(answer.GetGrants()) != 0 {
		t.Errorf("21 of 20: %v", answer)
	}
	batch.Requests = batch.Requests[:20]
	if answer := s.asks(t, u, op); !answer.GetSuccess() || len(answer.GetGrants()) != 20 || answer.GetTotal() != 20 {
		t.Errorf("20 of 20: %v", answer.GetMessage())
	}
	if answer := s.asks(t, u, exchangeOp(nil)); answer.GetError() != "ERR_QUOTA_EXCEEDED" {
		t.Errorf("the 21st: %v", answer)
	}
	s.makes(t, v, exchangeOp(nil))
	for _, n := range []int{0, maxBatch + 1} {
		batch.Requests = make([]*aetherv1.AuthorityGrantExchangeRequest, n)
		if answer := s.asks(t, u, op); answer.GetError() != "ERR_INVALID_ARGUMENT" {
			t.Errorf("%d: %v", n, answer)
		}
	}
	list := func(limit, offset int32) *aetherv1.AuthorityGrantResponse {
		t.Helper()
		return s.asks(t, u, &aetherv1.AuthorityGrantOperation{Op: aetherv1.AuthorityGrantOperation_OP_TYPE_LIST_GRANTS_ON_ME, ListRequest: &aetherv1.AuthorityGrantListRequest{Limit: limit, Offset: offset}})
	}
	if all, page := list(0, 0), list(7, 15); all.GetTotal() != 20 || len(all.GetGrants()) != 20 || len(page.GetGrants()) != 5 {
		t.Errorf("listed %d of %d, and %d", len(all.GetGrants()), all.GetTotal(), len(page.GetGrants()))
	}
	if list(-1, 0).GetError() != "ERR_INVALID_ARGUMENT" || list(0, -1).GetError() != "ERR_INVALID_ARGUMENT" {
		t.Error("negative numbers are taken")
	}
}

// A task that is made for somebody carries a grant of its own, which follows the
// task: to who does it, and to its end.
func Test17GrantsOfTasks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorld()
	s, u, a, b := w.service(t, nil), w.caller(t, userU, "w"), w.caller(t, agentA), w.caller(t, agentB)
	id := s.makes(t, u, exchangeOp(nil)).GetGrantId()
	under := &aetherv1.AuthorizationContext{GrantId: id, AuthorityMode: "on_behalf_of"}
	pool, _ := address.Parse("tb::w::i")
	made, err := s.ForTask(ctx, a, under, Task{ID: "t1", Workspace: "w", To: pool})
	if err != nil || made.SubjectID != "u" || made.RootGrantID != id || made.ParentGrantID != id {
		t.Fatalf("%+v, %v", made, err)
	}
	if code := s.sends(t, b, made.GrantID, "ga::w", "w"); code != "ERR_GRANT_INVALID" {
		t.Errorf("before it is assigned: %q", code)
	}
	if err := s.AssignTask(ctx, "t1", agentB); err != nil {
		t.Fatal(err)
	}
	if code := s.sends(t, b, made.GrantID, "ga::w", "w"); code != "" {
		t.Errorf("when it is assigned: %q", code)
	}
	if err := s.EndTask(ctx, "t1"); err != nil {
		t.Fatal(err)
	}
	if code := s.sends(t, b, made.GrantID, "ga::w", "w"); code != "ERR_GRANT_INVALID" {
		t.Errorf("when it has ended: %q", code)
	}
	// Who may not pass it on may do the task itself, no more.
	last := s.makes(t, a, deriveOp(id, agentB, nil)).GetGrantId()
	under = &aetherv1.AuthorizationContext{GrantId: last}
	own, _ := address.Parse(agentB)
	if _, err := s.ForTask(ctx, b, under, Task{ID: "t2", Workspace: "w", To: own, Delegate: agentB}); err != nil {
		t.Errorf("for itself: %v", err)
	}
	if _, err := s.ForTask(ctx, b, under, Task{ID: "t3", Workspace: "w", To: pool}); err == nil {
		t.Error("it was passed on to a pool")
	}
	if none, err := s.ForTask(ctx, b, nil, Task{ID: "t4", Workspace: "w"}); err != nil || none != (store.TaskGrant{}) {
		t.Errorf("without an authorization: %+v, %v", none, err)
	}
	if _, err := s.ForTask(ctx, a, &aetherv1.AuthorizationContext{GrantId: id}, Task{ID: "t5", Workspace: "v"}); err == nil {
		t.Error("in another workspace")
	}
}

// Who may act for whom is resolved for those whom it concerns.
func Test17Resolve(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s, u, a, b := w.service(t, nil), w.caller(t, userU, "w"), w.caller(t, agentA), w.caller(t, agentB)
	id := s.makes(t, u, exchangeOp(nil)).GetGrantId()
	ref := func(kind, id string) *aetherv1.PrincipalRef {
		return &aetherv1.PrincipalRef{PrincipalType: kind, PrincipalId: id}
	}
	for _, c := range []struct {
		as   *Caller
		r    *aetherv1.ResolveAuthorityRequest
		want string
	}{
		{a, &aetherv1.ResolveAuthorityRequest{GrantId: id}, ""},
		{u, &aetherv1.ResolveAuthorityRequest{GrantId: id, Actor: ref("AGENT", agentA), Subject: ref("user", "u"), AudienceType: "agent", AudienceId: agentA}, ""},
		{u, &aetherv1.ResolveAuthorityRequest{GrantId: id, Actor: ref("agent", agentB)}, "ERR_GRANT_INVALID"},
		{u, &aetherv1.ResolveAuthorityRequest{GrantId: id, Actor: ref("agent", agentA), Subject: ref("user", "v")}, "ERR_GRANT_INVALID"},
		{u, &aetherv1.ResolveAuthorityRequest{GrantId: id, Actor: ref("agent", agentA), AudienceId: agentB}, "ERR_GRANT_INVALID"},
		{u, &aetherv1.ResolveAuthorityRequest{GrantId: id, Actor: ref("agent", "x")}, "ERR_INVALID_ARGUMENT"},
		{u, &aetherv1.ResolveAuthorityRequest{GrantId: id}, "ERR_GRANT_INVALID"},
		{b, &aetherv1.ResolveAuthorityRequest{GrantId: id, Actor: ref("agent", agentA)}, "ERR_NOT_FOUND"},
		{b, &aetherv1.ResolveAuthorityRequest{GrantId: "gr_none"}, "ERR_NOT_FOUND"},
	} {
		answer, _ := s.Resolve(context.Background(), c.as, c.r)
		if code, _, _ := strings.Cut(answer.GetError(), ":"); code != c.want || answer.GetOk() != (c.want == "") {
			t.Errorf("%v: %v", c.r, answer)
		}
	}
	s.asks(t, u, &aetherv1.AuthorityGrantOperation{Op: aetherv1.AuthorityGrantOperation_OP_TYPE_REVOKE, GrantId: id})
	if answer, _ := s.Resolve(context.Background(), a, &aetherv1.ResolveAuthorityRequest{GrantId: id}); answer.GetOk() {
		t.Error("revoked and resolved")
	}
}

// Operators issue grants for who need not be there, and never more than those
// may.
func Test17OperatorsIssue(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorld()
	s, a := w.service(t, nil), w.caller(t, agentA)
	u := &aetherv1.PrincipalRef{PrincipalType: "user", PrincipalId: "u"}
	request := exchangeOp(func(r *aetherv1.AuthorityGrantExchangeRequest) { r.WorkspaceScope = []string{"w"} }).GetExchangeRequest()
	g, err := s.Issue(ctx, "op", u, request)
	if err != nil || g.IssuedBy != "op" {
		t.Fatal(g, err)
	}
	for to, want := range map[string]string{"ga::w": "", "event::w": "ERR_GRANT_INVALID"} {
		if code := s.sends(t, a, g.ID, to, "w"); code != want {
			t.Errorf("to %s: %q", to, code)
		}
	}
	service := &aetherv1.PrincipalRef{PrincipalType: "service", PrincipalId: "sv::i::s"}
	if g, err := s.Issue(ctx, "op", service, request); err != nil || s.sends(t, a, g.ID, "gu::w", "w") == "" || s.sends(t, a, g.ID, "ga::w", "w") != "" {
		t.Errorf("of a service: %v, %v", g, err)
	}
	for name, c := range map[string]struct {
		subject *aetherv1.PrincipalRef
		change  func(*aetherv1.AuthorityGrantExchangeRequest)
	}{
		"nowhere":    {u, func(r *aetherv1.AuthorityGrantExchangeRequest) { r.WorkspaceScope = nil }},
		"to nobody":  {u, func(r *aetherv1.AuthorityGrantExchangeRequest) { r.AudienceType, r.AudienceId = "", "" }},
		"of nobody":  {nil, nil},
		"everywhere": {u, func(r *aetherv1.AuthorityGrantExchangeRequest) { r.WorkspaceScope = []string{"*"} }},
	} {
		r := exchangeOp(c.change).GetExchangeRequest()
		if c.change == nil {
			r.WorkspaceScope = []string{"w"}
		}
		if g, err := s.Issue(ctx, "op", c.subject, r); err == nil {
			t.Errorf("%s: %v", name, g)
		}
	}
	list, total, fault := s.List(ctx, store.GrantFilter{}, 0, 10)
	if fault != nil || total != 2 || len(list) != 2 {
		t.Errorf("%d, %v", total, fault)
	}
	if _, n, err := s.Revoke(ctx, g.ID, "op", "why"); n != 1 || err != nil {
		t.Error(n, err)
	}
	if _, _, err := s.Revoke(ctx, "gr_none", "op", "why"); err == nil {
		t.Error("revoked none")
	}
}

// What a grant was made with is revoked: so is the grant, for ever once that is
// sure, and not merely because something is not known yet.
func Test17ProofIsRevoked(t *testing.T) {
	t.Parallel()
	w := newWorld()
	s, u, a := w.service(t, nil), w.caller(t, userU, "w"), w.caller(t, agentA)
	told := make(chan []Revoked, 10)
	s.OnRevoked(func(list []Revoked) { told <- list })
	id := s.makes(t, u, exchangeOp(nil)).GetGrantId()
	set := func(void bool) {
		w.mu.Lock()
		w.void["proof of "+userU] = void
		w.mu.Unlock()
		s.Recheck()
	}
	for _, c := range []struct {
		void bool
		want string
	}{{true, "ERR_GRANT_INVALID"}, {false, ""}} {
		set(c.void)
		if code := s.sends(t, a, id, "ga::w", "w"); code != c.want {
			t.Errorf("void %v: %q", c.void, code)
		}
	}
	w.forward(time.Minute)
	set(true)
	if list := <-told; len(list) != 1 || list[0].ID != id || list[0].Delegate != agentA || list[0].Subject != "u" {
		t.Errorf("told %+v", list)
	}
	set(false)
	if code := s.sends(t, a, id, "ga::w", "w"); code != "ERR_GRANT_INVALID" {
		t.Errorf("revoked: %q", code)
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	c := newWorld().caller(t, agentA)
	self := &aetherv1.PrincipalRef{PrincipalType: "agent", PrincipalId: agentA}
	other := &aetherv1.PrincipalRef{PrincipalType: "user", PrincipalId: "u"}
	long := &aetherv1.PrincipalRef{PrincipalType: "user", PrincipalId: strings.Repeat("u", 1<<20)}
	for i, c2 := range []struct {
		a     *aetherv1.AuthorizationContext
		named bool
		code  string
	}{
		{nil, false, ""},
		{&aetherv1.AuthorizationContext{}, false, ""},
		{&aetherv1.AuthorizationContext{AuthorityMode: "direct"}, false, ""},
		{&aetherv1.AuthorizationContext{Subject: self}, false, ""},
		{&aetherv1.AuthorizationContext{Subject: other}, false, "ERR_GRANT_INVALID"},
		{&aetherv1.AuthorizationContext{AuthorityMode: "on_behalf_of"}, false, "ERR_GRANT_INVALID"},
		{&aetherv1.AuthorizationContext{GrantId: "g", AuthorityMode: "direct"}, false, "ERR_INVALID_ARGUMENT"},
		{&aetherv1.AuthorizationContext{GrantId: strings.Repeat("g", maxID+1)}, false, "ERR_GRANT_INVALID"},
		{&aetherv1.AuthorizationContext{GrantId: "g", Subject: long}, false, "ERR_INVALID_ARGUMENT"},
		{&aetherv1.AuthorizationContext{GrantId: "g", AuthorityMode: "whatever"}, true, ""},
	} {
		named, err := Names(c.Principal, c2.a)
		code := ""
		if err != nil {
			code = string(err.Code)
		}
		if named != c2.named || code != c2.code {
			t.Errorf("%d: %v, %q", i, named, code)
		}
	}
}

// While the store is away grants that are known count, others are refused so
// that they can be tried again, and none is made.
func Test17StoreAway(t *testing.T) {
	t.Parallel()
	w := newWorld()
	away := &awayStore{}
	s := w.service(t, func(o *Options) { away.inner = o.Store; o.Store = away })
	u, a := w.caller(t, userU, "w"), w.caller(t, agentA)
	id := s.makes(t, u, exchangeOp(nil)).GetGrantId()
	away.away.Store(true)
	if code := s.sends(t, a, id, "ga::w", "w"); code != "" {
		t.Errorf("a known one: %q", code)
	}
	if err := s.Look(context.Background()); err == nil {
		t.Error("it was looked up")
	}
	for name, op := range map[string]*aetherv1.AuthorityGrantOperation{
		"exchange": exchangeOp(nil), "derive": deriveOp("gr_none", agentB, nil), "get": {Op: aetherv1.AuthorityGrantOperation_OP_TYPE_GET, GrantId: id},
		"list": {Op: aetherv1.AuthorityGrantOperation_OP_TYPE_LIST_MY_GRANTS},
	} {
		if answer := s.asks(t, u, op); answer.GetError() != "ERR_UNAVAILABLE" {
			t.Errorf("%s: %v", name, answer)
		}
	}
}

// What nobody has told of the end of tasks and sessions is made up for.
func Test17Sweep(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	w := newWorld()
	over := map[string]bool{}
	s := w.service(t, func(o *Options) {
		o.TaskOver = func(_ context.Context, id string) (bool, error) { return over[id], nil }
	})
	u, a, b := w.caller(t, userU, "w"), w.caller(t, agentA), w.caller(t, agentB)
	id := s.makes(t, u, exchangeOp(nil)).GetGrantId()
	task, err := s.ForTask(ctx, a, &aetherv1.AuthorizationContext{GrantId: id}, Task{ID: "t", Workspace: "w", Delegate: agentB})
	if err != nil {
		t.Fatal(err)
	}
	session := s.makes(t, u, exchangeOp(func(r *aetherv1.AuthorityGrantExchangeRequest) {
		r.AudienceType, r.AudienceId, r.ValidWhileAudienceActive = "session", b.Session, true
	})).GetGrantId()
	for name, c := range map[string]struct {
		grant string
		end   func()
	}{
		"task":    {task.GrantID, func() { over["t"] = true; w.forward(2 * time.Minute) }},
		"session": {session, func() { w.mu.Lock(); delete(w.sessions, b.Session); w.mu.Unlock() }},
	} {
		s.sweep()
		if code := s.sends(t, b, c.grant, "ga::w", "w"); code != "" {
			t.Errorf("%s: %q while it lasts", name, code)
		}
		c.end()
		s.sweep()
		if code := s.sends(t, b, c.grant, "ga::w", "w"); code != "ERR_GRANT_INVALID" {
			t.Errorf("%s: %q when it has ended", name, code)
		}
	}
}
