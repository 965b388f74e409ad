package auth

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/aether-gateway/gateway/internal/acl"
)

// Type is the sort of a credential.
type Type string

// The types of credentials.
const (
	TypeToken       Type = "token"
	TypeAPIKey      Type = "API key"
	TypeTaskToken   Type = "task token"
	TypeCertificate Type = "certificate"
	TypeAnonymous   Type = "anonymous" // nothing was shown, and nothing was asked for
)

// Credential is a verified credential. It is immutable and safe for concurrent
// use. It is worth nothing after ExpiresAt, to the instant: the leeway of a
// Verifier is for connecting only. A zero ExpiresAt, which only an API key may
// have, and a task token, is never.
type Credential struct {
	Claims
	Type Type
	// KeyID is the kid of the key that signed a token, or the id of an API key or
	// of a task token's task.
	KeyID string
	// Run is what a task token is for; zero for other credentials.
	Run TaskRun
	// Fingerprint is the SHA-256, in hex, of what is unique about the
	// credential: of a token without its signature, since one text may have
	// several signatures that hold; of a certificate as a whole. An API key or a
	// task token has none: its id names it.
	Fingerprint string

	scope acl.WorkspaceSet
	// good says whether what has proved the credential is still a good one; nil
	// is yes.
	good func() bool
}

// Withdrawn says whether the key that signed a token, or the authority of a
// certificate, has been taken away since the credential was verified. It answers
// from memory.
func (c *Credential) Withdrawn() bool { return c.good != nil && !c.good() }

// credential is the credential that proves these claims.
func (c *Claims) credential(t Type) *Credential {
	return &Credential{Claims: *c, Type: t, scope: c.scope()}
}

// fingerprint is that of a token whose form has been checked.
func fingerprint(token string) string {
	signed := token[:strings.LastIndexByte(token, '.')]
	sum := sha256.Sum256([]byte(signed))
	return hex.EncodeToString(sum[:])
}

// Scope is the set of workspaces that the credential covers.
func (c *Credential) Scope() acl.WorkspaceSet { return c.scope }

// IsOperator reports whether the credential is one for operator commands.
func (c *Credential) IsOperator() bool { return c.Kind == KindOperator }

// String names the credential for logs: its kind, subject and id, never the
// token.
func (c *Credential) String() string {
	return fmt.Sprintf("%s %s of %.64q, id %.64q", c.Kind, c.Type, c.Subject, c.ID)
}

// Bind says whether the credential proves the whole identity, and gives the
// principal if it does. An error wraps ErrInvalidIdentity or ErrNotCovered.
//
// The principal of a non-unique task without an id has a zero Address; its
// owner sets it once the id is assigned. A user starts in the workspace that it
// asks for, else in the only one of the credential, else in none.
func (c *Credential) Bind(id Identity) (acl.Principal, error) {
	if id.Kind == acl.User && id.Workspace == "" {
		id.Workspace, _ = c.scope.Only()
	}
	a, err := id.address()
	if err != nil {
		return acl.Principal{}, err
	}
	if part := c.uncovered(&id); part != "" {
		return acl.Principal{}, fmt.Errorf("%w: %s", ErrNotCovered, part)
	}
	p := acl.Principal{Kind: id.Kind, Address: a, Workspaces: c.scope}
	if a.IsZero() && id.Kind != acl.Task {
		p.Identity = id.String()
	}
	if id.Kind.WorkspaceScoped() {
		p.Workspace = id.Workspace
	}
	return p, nil
}

// uncovered names the first part of the identity that the credential does not
// prove, or "" if it proves all of it. It does not say what would be covered.
func (c *Credential) uncovered(id *Identity) string {
	const (
		kind      = "its kind is another"
		workspace = "not in this workspace"
		impl      = "not for this implementation"
		spec      = "not for this specifier"
		instance  = "not for this instance id"
		user      = "not for this user"
	)
	switch id.Kind {
	case acl.Agent:
		switch {
		case c.Kind != KindAgent:
			return kind
		case !c.scope.Covers(id.Workspace):
			return workspace
		case c.Impl != id.Implementation:
			return impl
		case !matchSpec(c.Spec, id.Specifier):
			return spec
		}
	case acl.UniqueTask, acl.Task:
		switch {
		case c.Kind != KindTask:
			return kind
		case !c.scope.Covers(id.Workspace):
			return workspace
		case c.Impl != id.Implementation:
			return impl
		case id.Kind == acl.Task && c.Spec != "" && c.Spec != "*":
			return "for a unique task only"
		case id.Kind == acl.UniqueTask && c.Spec == "":
			return "for tasks without a specifier only"
		case id.Kind == acl.UniqueTask && !matchSpec(c.Spec, id.Specifier):
			return spec
		}
	case acl.User:
		switch {
		case c.Kind != KindUser:
			return kind
		case c.User != id.UserID:
			return user
		case id.Workspace != "" && !c.scope.Covers(id.Workspace):
			return workspace
		}
	case acl.WorkflowEngine, acl.MetricsBridge:
		switch {
		case c.Kind != id.Kind.String():
			return kind
		case !matchSpec(c.Spec, id.Specifier):
			return instance
		}
	case acl.Orchestrator, acl.Service, acl.Bridge:
		switch {
		case c.Kind != id.Kind.String():
			return kind
		case c.Impl != id.Implementation:
			return impl
		case !matchSpec(c.Spec, id.Specifier):
			return spec
		}
	default:
		return kind
	}
	return ""
}
