package auth

import (
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
)

// The values of the kind claim.
const (
	KindAgent          = "agent"
	KindTask           = "task" // unique and non-unique tasks: see Claims.Spec
	KindUser           = "user"
	KindWorkflowEngine = "workflow_engine"
	KindMetricsBridge  = "metrics_bridge"
	KindOrchestrator   = "orchestrator"
	KindService        = "service"
	KindBridge         = "bridge"
	KindOperator       = "operator" // for operator commands; connects as no principal
)

const (
	// DefaultIssuer and DefaultAudience are written by Mint and expected by a
	// Verifier unless it is told otherwise.
	DefaultIssuer   = "aether"
	DefaultAudience = "aether"

	// AllWorkspaces in Claims.Workspaces stands for all of them.
	AllWorkspaces = "*"
)

// Claims is what a token says. It is a plain value; who changes it must not
// share it.
type Claims struct {
	Subject string // sub: whom the token was issued to, for the audit
	Kind    string // kind: one of the Kind constants
	// Workspaces is the claim of that name: where an agent or a task may live,
	// which workspaces a user is a member of, which ones the others reach;
	// operators are not limited. The single entry "*" (on the wire also the bare string) is all of them, for
	// the kinds that are not workspace-scoped.
	Workspaces []string
	Impl       string // impl: the implementation, exactly
	// Spec is the specifier, or the instance id of workflow engines and metrics
	// bridges; `*` in it stands for any run of characters. In the token of a
	// task it names unique tasks; a task token without it is for non-unique
	// ones, and the bare "*" covers both.
	Spec  string
	User  string   // user: the user id, exactly; any window
	Roles []string // roles: free for operators' rules

	ID        string    // jti
	Issuer    string    // iss
	Audience  []string  // aud
	IssuedAt  time.Time // iat, to the second; zero is absent, for these three
	NotBefore time.Time // nbf
	ExpiresAt time.Time // exp; required
}

// scope is the set of workspaces that the claims name.
func (c *Claims) scope() acl.WorkspaceSet {
	if c.coversAll() {
		return acl.All()
	}
	return acl.Workspaces(c.Workspaces...)
}

func (c *Claims) coversAll() bool {
	return len(c.Workspaces) == 1 && c.Workspaces[0] == AllWorkspaces
}

// check says whether the claims make an identity that could connect. Its errors
// wrap ErrClaims.
func (c *Claims) check() error {
	type needs struct{ workspaced, workspace, impl, spec, user bool }
	var n needs
	switch c.Kind {
	case KindAgent:
		n = needs{workspaced: true, workspace: true, impl: true, spec: true}
	case KindTask:
		n = needs{workspaced: true, workspace: true, impl: true}
	case KindUser:
		n = needs{workspaced: true, user: true}
	case KindWorkflowEngine, KindMetricsBridge:
		n = needs{spec: true}
	case KindOrchestrator, KindService, KindBridge:
		n = needs{impl: true, spec: true}
	case KindOperator:
	case "":
		return fmt.Errorf("%w: kind is missing", ErrClaims)
	default:
		return fmt.Errorf("%w: kind is none of those that exist", ErrClaims)
	}
	if !c.coversAll() {
		for _, ws := range c.Workspaces {
			if err := address.ValidWorkspace(ws); err != nil {
				return fmt.Errorf("%w: workspaces: %w", ErrClaims, err)
			}
		}
	}
	switch {
	case n.workspaced && c.coversAll():
		return fmt.Errorf("%w: workspaces: '*' is not for kind %s, which lives in one workspace at a time", ErrClaims, c.Kind)
	case c.Kind == KindOperator && len(c.Workspaces) > 0 && !c.coversAll():
		// It would be taken for less than it is.
		return fmt.Errorf("%w: workspaces: an operator reaches all of them; leave it out, or write '*'", ErrClaims)
	case n.workspace && len(c.Workspaces) == 0:
		return fmt.Errorf("%w: workspaces is missing", ErrClaims)
	case n.impl && c.Impl == "":
		return fmt.Errorf("%w: impl is missing", ErrClaims)
	case n.spec && c.Spec == "":
		return fmt.Errorf("%w: spec is missing", ErrClaims)
	case n.user && c.User == "":
		return fmt.Errorf("%w: user is missing", ErrClaims)
	}
	if c.Impl != "" {
		if err := address.ValidSegment(c.Impl); err != nil {
			return fmt.Errorf("%w: impl: %w", ErrClaims, err)
		}
	}
	if c.User != "" {
		if err := address.ValidSegment(c.User); err != nil {
			return fmt.Errorf("%w: user: %w", ErrClaims, err)
		}
	}
	if c.Spec != "" {
		if err := checkPattern(c.Spec); err != nil {
			return fmt.Errorf("%w: spec: %w", ErrClaims, err)
		}
	}
	return nil
}

// maxUnix is the last second of the year 9999, past which a time is a mistake.
const maxUnix = 253402300799

// parseClaims reads the payload of a token. Names are exact and types are
// strict, so that nothing in a token means two things; unknown claims are left
// alone. Its errors wrap ErrClaims and repeat nothing of the payload.
func parseClaims(payload []byte) (Claims, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(payload, &m); err != nil || m == nil {
		return Claims{}, fmt.Errorf("%w: the payload is not a JSON object", ErrClaims)
	}
	var c Claims
	fields := []struct {
		name string
		want string
		read func(json.RawMessage) bool
	}{
		{"sub", "a string", stringInto(&c.Subject)},
		{"kind", "a string", stringInto(&c.Kind)},
		{"workspaces", "a list of strings or '*'", func(raw json.RawMessage) bool {
			var one string
			if json.Unmarshal(raw, &one) == nil {
				c.Workspaces = []string{one}
				return one == AllWorkspaces
			}
			return json.Unmarshal(raw, &c.Workspaces) == nil
		}},
		{"impl", "a string", stringInto(&c.Impl)},
		{"spec", "a string", stringInto(&c.Spec)},
		{"user", "a string", stringInto(&c.User)},
		{"roles", "a list of strings", func(raw json.RawMessage) bool { return json.Unmarshal(raw, &c.Roles) == nil }},
		{"jti", "a string", stringInto(&c.ID)},
		{"iss", "a string", stringInto(&c.Issuer)},
		{"aud", "a string or a list of strings", func(raw json.RawMessage) bool {
			var one string
			if json.Unmarshal(raw, &one) == nil {
				c.Audience = []string{one}
				return true
			}
			return json.Unmarshal(raw, &c.Audience) == nil
		}},
		{"iat", "a time in seconds", timeInto(&c.IssuedAt)},
		{"nbf", "a time in seconds", timeInto(&c.NotBefore)},
		{"exp", "a time in seconds", timeInto(&c.ExpiresAt)},
	}
	for _, f := range fields {
		raw, ok := m[f.name]
		if !ok {
			continue
		}
		// A null would leave the field as if it were absent.
		if string(raw) == "null" || !f.read(raw) {
			return Claims{}, fmt.Errorf("%w: %s is not %s", ErrClaims, f.name, f.want)
		}
	}
	return c, nil
}

func stringInto(to *string) func(json.RawMessage) bool {
	return func(raw json.RawMessage) bool { return json.Unmarshal(raw, to) == nil }
}

func timeInto(to *time.Time) func(json.RawMessage) bool {
	return func(raw json.RawMessage) bool {
		var seconds float64
		if json.Unmarshal(raw, &seconds) != nil || !(seconds >= 0 && seconds <= maxUnix) {
			return false
		}
		whole, fraction := math.Modf(seconds)
		*to = time.Unix(int64(whole), int64(fraction*float64(time.Second))).UTC()
		return true
	}
}

// encode is the payload of a token with these claims. Absent ones are left out.
func (c *Claims) encode() ([]byte, error) {
	m := map[string]any{}
	put := func(name, value string) {
		if value != "" {
			m[name] = value
		}
	}
	at := func(name string, t time.Time) {
		if !t.IsZero() {
			m[name] = t.Unix()
		}
	}
	put("sub", c.Subject)
	put("kind", c.Kind)
	put("impl", c.Impl)
	put("spec", c.Spec)
	put("user", c.User)
	put("jti", c.ID)
	put("iss", c.Issuer)
	at("iat", c.IssuedAt)
	at("nbf", c.NotBefore)
	at("exp", c.ExpiresAt)
	switch {
	case c.coversAll():
		m["workspaces"] = AllWorkspaces
	case len(c.Workspaces) > 0:
		m["workspaces"] = c.Workspaces
	}
	if len(c.Roles) > 0 {
		m["roles"] = c.Roles
	}
	switch len(c.Audience) {
	case 0:
	case 1:
		m["aud"] = c.Audience[0]
	default:
		m["aud"] = c.Audience
	}
	return json.Marshal(m)
}
