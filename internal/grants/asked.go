package grants

import (
	"cmp"
	"strings"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Bounds of a grant. What is beyond is refused.
const (
	// MaxDepth is how long a chain of grants may be, the first not counted: how
	// many hops there are at most.
	MaxDepth = 8

	maxWorkspaces = 64
	maxPatterns   = 64
	maxPatternLen = 8 << 10 // bytes of all of them
	maxOperations = 32
	maxMeta       = 32
	maxMetaBytes  = 4096
	maxReason     = 512
	maxID         = 128
)

// The audiences.
const (
	audienceSession = "session"
	audienceTask    = "task"
)

// asked is what a client asks of a grant, exchanged or derived.
type asked struct {
	workspaces                []string
	resources                 []*aetherv1.ACLAuthorityGrantResourceScopeEntry
	operations                []string
	level                     int32
	audienceType, audienceID  string
	whileActive               bool
	expiresAt, renewableUntil int64
	mayDelegate               bool
	hops                      int32
	reason                    string
	meta                      map[string]string
}

func exchangeAsked(r *aetherv1.AuthorityGrantExchangeRequest) *asked {
	return &asked{
		r.GetWorkspaceScope(), r.GetResourceScope(), r.GetOperationScope(), r.GetMaxAccessLevel(), r.GetAudienceType(), r.GetAudienceId(),
		r.GetValidWhileAudienceActive(), r.GetExpiresAt(), r.GetRenewableUntil(), r.GetMayDelegate(), r.GetRemainingHops(), r.GetReason(), r.GetMetadata(),
	}
}

func deriveAsked(r *aetherv1.AuthorityGrantDeriveRequest) *asked {
	return &asked{
		r.GetWorkspaceScope(), r.GetResourceScope(), r.GetOperationScope(), r.GetMaxAccessLevel(), r.GetAudienceType(), r.GetAudienceId(),
		r.GetValidWhileAudienceActive(), r.GetExpiresAt(), r.GetRenewableUntil(), r.GetMayDelegate(), r.GetRemainingHops(), r.GetReason(), r.GetMetadata(),
	}
}

func targetAsked(r *aetherv1.AuthorityGrantDeriveForTargetRequest) *asked {
	return &asked{
		operations: r.GetOperationScope(), level: r.GetMaxAccessLevel(), audienceType: r.GetAudienceType(), audienceID: r.GetAudienceId(),
		expiresAt: r.GetExpiresAt(), renewableUntil: r.GetRenewableUntil(), mayDelegate: r.GetMayDelegate(), hops: r.GetRemainingHops(), reason: r.GetReason(),
	}
}

func bad(format string, args ...any) *wireerr.Error {
	return wireerr.New(wireerr.InvalidArgument, format, args...)
}

func invalid(format string, args ...any) *wireerr.Error {
	return wireerr.New(wireerr.GrantInvalid, format, args...)
}

// wider refuses a grant that would be more than its parent.
func wider(what string) *wireerr.Error {
	return invalid("%s would be wider than that of the parent grant", what)
}

// check looks at all that can be judged without knowing whose grant it will be,
// and brings it into one form. Numbers are in range after it.
func (a *asked) check() *wireerr.Error {
	if err := a.checkScopes(); err != nil {
		return err
	}
	if _, known := levelNames[a.level]; !known {
		return bad("max_access_level is %d: 10 read, 20 read-write, 30 manage and 40 admin are known", a.level)
	}
	switch {
	case a.hops < 0 || a.hops > MaxDepth:
		return bad("remaining_hops is %d: 0 to %d are allowed", a.hops, MaxDepth)
	case a.hops > 0 && !a.mayDelegate:
		return bad("remaining_hops is %d, and may_delegate is not set", a.hops)
	case len(a.audienceID) > maxIdentity:
		return bad("audience_id is too long")
	}
	a.audienceType = strings.ToLower(a.audienceType)
	for _, t := range [][2]any{{"expires_at", a.expiresAt}, {"renewable_until", a.renewableUntil}} {
		if err := checkTime(t[0].(string), t[1].(int64)); err != nil {
			return err
		}
	}
	return a.checkTexts()
}

// checkTime refuses what is no time, so that nothing is computed of it.
func checkTime(what string, seconds int64) *wireerr.Error {
	const year9999 = 253402300799
	if seconds < 0 || seconds > year9999 {
		return bad("%s is %d, which is no time in Unix seconds", what, seconds)
	}
	return nil
}

func (a *asked) checkScopes() *wireerr.Error {
	if len(a.workspaces) > maxWorkspaces {
		return bad("workspace_scope has %d workspaces, %d are allowed", len(a.workspaces), maxWorkspaces)
	}
	for _, ws := range a.workspaces {
		if err := address.ValidWorkspace(ws); err != nil && ws != everything {
			return bad("workspace_scope: %v", err)
		}
	}
	if len(a.operations) > maxOperations {
		return bad("operation_scope has %d operations, %d are allowed", len(a.operations), maxOperations)
	}
	if _, unknown := operationsOf(a.operations); unknown != "" {
		return bad("operation_scope: %.64q is unknown; %s and * are known", unknown, strings.Join(operationNames, ", "))
	}
	patterns, err := a.patterns()
	if err != nil {
		return err
	}
	if n := len(strings.Join(patterns, "")); n > maxPatternLen {
		return bad("resource_scope has %d bytes of patterns, %d are allowed", n, maxPatternLen)
	}
	if _, err := compilePatterns(patterns); err != nil {
		return bad("%v", err)
	}
	return nil
}

// patterns are those of the addresses; none is all.
func (a *asked) patterns() (all []string, err *wireerr.Error) {
	for _, r := range a.resources {
		switch strings.ToLower(r.GetResourceType()) {
		case "address", "topic":
		default:
			return nil, bad("resource_scope: the resource_type %.32q is unknown: address is known", r.GetResourceType())
		}
		if len(r.GetPatterns()) == 0 {
			return nil, bad("resource_scope: an entry has no patterns")
		}
		if all = append(all, r.GetPatterns()...); len(all) > maxPatterns {
			return nil, bad("resource_scope has more than %d patterns", maxPatterns)
		}
	}
	return all, nil
}

func (a *asked) checkTexts() *wireerr.Error {
	if len(a.reason) > maxReason || strings.ContainsRune(a.reason, 0) {
		return bad("reason has more than %d bytes, or a zero byte", maxReason)
	}
	if len(a.meta) > maxMeta {
		return bad("metadata has %d keys, %d are allowed", len(a.meta), maxMeta)
	}
	size := 0
	for k, v := range a.meta {
		size += len(k) + len(v)
		if strings.ContainsRune(k, 0) || strings.ContainsRune(v, 0) {
			return bad("metadata has a zero byte")
		}
	}
	if size > maxMetaBytes {
		return bad("metadata has %d bytes, %d are allowed", size, maxMetaBytes)
	}
	return nil
}

// lifetime is how long grants are good.
type lifetime struct{ standard, most time.Duration }

// times are when a first grant expires and until when it may be renewed.
func (a *asked) times(now time.Time, l lifetime) (expires, renewable time.Time, err *wireerr.Error) {
	expires = now.Add(l.standard)
	if a.expiresAt != 0 {
		expires = time.Unix(a.expiresAt, 0)
	}
	return a.renewal(now, expires, now.Add(l.most))
}

func (a *asked) renewal(now, expires, latest time.Time) (time.Time, time.Time, *wireerr.Error) {
	renewable := expires
	if a.renewableUntil != 0 {
		renewable = time.Unix(a.renewableUntil, 0)
	}
	switch {
	case !now.Before(expires):
		return now, now, bad("expires_at has passed")
	case renewable.Before(expires):
		return now, now, bad("renewable_until is before expires_at")
	case renewable.After(latest):
		return now, now, bad("the grant would last until %s; %s is the latest", stamp(renewable), stamp(latest))
	}
	return expires, renewable, nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// first makes the terms of a grant by a subject itself.
func (a *asked) first(subject *acl.Principal) (terms, *wireerr.Error) {
	t := terms{Operations: a.operations, Level: cmp.Or(a.level, LevelWrite), Hops: a.hops, WhileActive: a.whileActive, As: subject.Name(), Reason: a.reason, Meta: a.meta}
	t.Patterns, _ = a.patterns()
	if a.mayDelegate && t.Hops == 0 {
		t.Hops = 1
	}
	reach := subject.Workspaces
	switch {
	case subject.Kind == acl.Bridge && reach.IsEmpty():
		reach = acl.All() // exempt from the workspace rule
	case subject.Kind.WorkspaceScoped() && subject.Kind != acl.User:
		reach = acl.Workspaces(subject.Workspace)
	}
	switch {
	case len(a.workspaces) > 0:
		t.Workspaces = setNames(workspaceSet(a.workspaces))
	case subject.Kind == acl.User:
		if subject.Workspace == "" {
			return terms{}, bad("workspace_scope is missing, and the user is in no workspace")
		}
		t.Workspaces = []string{subject.Workspace}
	default:
		t.Workspaces = setNames(reach)
	}
	switch {
	case len(t.Workspaces) == 0:
		return terms{}, invalid("the credential covers no workspace in which the grant could be used")
	case len(t.Workspaces) > maxWorkspaces:
		return terms{}, bad("the credential covers %d workspaces; name at most %d in workspace_scope", len(t.Workspaces), maxWorkspaces)
	case !within(workspaceSet(t.Workspaces), reach):
		return terms{}, invalid("workspace_scope has a workspace that the credential does not cover")
	}
	if !subject.Kind.WorkspaceScoped() {
		t.Scope = setNames(reach)
		if len(t.Scope) > maxWorkspaces {
			t.Scope = t.Workspaces // it reaches no others by this grant
		}
	}
	return t, nil
}

// below makes the terms and times of a grant that derives from another one, or
// refuses what would be wider.
func (a *asked) below(parent *held, hops int32, now time.Time) (t terms, expires, renewable time.Time, err *wireerr.Error) {
	p := &parent.terms
	t = terms{
		Workspaces: p.Workspaces, Patterns: p.Patterns, Operations: p.Operations, Level: cmp.Or(a.level, p.Level), Hops: a.hops,
		WhileActive: a.whileActive, As: p.As, Scope: p.Scope, Proof: p.Proof, Reason: a.reason, Meta: a.meta,
	}
	switch {
	case hops < 1:
		return t, now, now, invalid("the grant may not be passed on")
	case t.Hops > hops-1 || a.mayDelegate && hops == 1:
		return t, now, now, wider("remaining_hops")
	case a.mayDelegate && t.Hops == 0:
		t.Hops = hops - 1
	}
	if t.Level > p.Level {
		return t, now, now, wider("max_access_level")
	}
	if len(a.workspaces) > 0 {
		if t.Workspaces = setNames(workspaceSet(a.workspaces)); !within(workspaceSet(a.workspaces), parent.workspaces) {
			return t, now, now, wider("workspace_scope")
		}
	}
	if len(a.operations) > 0 {
		t.Operations = a.operations
		if set, _ := operationsOf(a.operations); set&^parent.operations != 0 {
			return t, now, now, wider("operation_scope")
		}
	}
	if patterns, _ := a.patterns(); len(patterns) > 0 {
		if t.Patterns = patterns; !narrower(patterns, parent) {
			return t, now, now, wider("resource_scope")
		}
	}
	expires = parent.ExpiresAt
	if a.expiresAt != 0 {
		expires = time.Unix(a.expiresAt, 0)
	}
	if expires.After(parent.ExpiresAt) {
		return t, now, now, wider("expires_at")
	}
	if a.renewableUntil > ceilUnix(parent.RenewableUntil) {
		return t, now, now, wider("renewable_until")
	}
	expires, renewable, err = a.renewal(now, expires, parent.RenewableUntil.Add(time.Second))
	if renewable.After(parent.RenewableUntil) {
		renewable = parent.RenewableUntil // by less than a second
	}
	return t, expires, renewable, err
}

func ceilUnix(t time.Time) int64 {
	s := t.Unix()
	if t.Nanosecond() > 0 {
		s++
	}
	return s
}

// narrower reports whether all that the patterns take is taken by the parent's.
// What cannot be told is not.
func narrower(patterns []string, parent *held) bool {
	if parent.patterns == nil {
		return true
	}
	all, err := compilePatterns(patterns)
	if err != nil || all == nil {
		return false
	}
	for _, p := range all {
		covered := false
		for _, q := range parent.patterns {
			covered = covered || q.Covers(p)
		}
		if !covered {
			return false
		}
	}
	return true
}
