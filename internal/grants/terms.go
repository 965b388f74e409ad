package grants

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/policy"
	"github.com/aether-gateway/gateway/internal/subject"
)

// Access levels of the protocol.
const (
	LevelRead   int32 = 10
	LevelWrite  int32 = 20
	LevelManage int32 = 30
	LevelAdmin  int32 = 40
)

var levelNames = map[int32]string{0: "none", LevelRead: "read", LevelWrite: "read_write", LevelManage: "manage", LevelAdmin: "admin"}

// everything stands for all workspaces, operations or addresses in a scope.
const everything = "*"

// OperationTaskCreate is the operation of making a task; the other operations
// are called as the actions of rules are.
const OperationTaskCreate = "task:create"

// operationNames are what a grant can be limited to.
var operationNames = func() (names []string) {
	for _, a := range acl.Actions() {
		names = append(names, a.String())
	}
	return append(names, OperationTaskCreate)
}()

// operations is a set of operations, by their place in operationNames.
type operations uint32

const allOperations = ^operations(0)

func operation(name string) operations {
	if i := slices.Index(operationNames, name); i >= 0 {
		return 1 << i
	}
	return 0
}

func operationsOf(names []string) (set operations, unknown string) {
	if len(names) == 0 {
		return allOperations, ""
	}
	for _, name := range names {
		bit := operation(name)
		if name == everything {
			bit = allOperations
		}
		if bit == 0 {
			return 0, name
		}
		set |= bit
	}
	return set, ""
}

// Proof is what the session was connected with of which a grant was made, so that
// the grant ends when that is revoked. It holds no secret.
type Proof struct {
	Type        string `json:"type,omitempty"`
	KeyID       string `json:"key,omitempty"`
	ID          string `json:"id,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	Subject     string `json:"subject,omitempty"`
	User        string `json:"user,omitempty"`
	// IssuedAt is in Unix seconds, 0 for not known.
	IssuedAt int64 `json:"issued_at,omitempty"`
}

// terms are what a grant allows, as they are stored.
type terms struct {
	// Workspaces are those in which it may be used; "*" is all that its subject
	// reaches.
	Workspaces []string `json:"workspaces"`
	// Patterns are the addresses that it reaches; none: all.
	Patterns []string `json:"patterns,omitempty"`
	// Operations are what it is for; none: everything.
	Operations  []string `json:"operations,omitempty"`
	Level       int32    `json:"level"`
	Hops        int32    `json:"hops,omitempty"`
	WhileActive bool     `json:"while_active,omitempty"`
	// As is the identity under which its subject is judged, Scope the workspaces
	// of the credential that its subject had, for kinds that are not in one.
	As     string            `json:"as"`
	Scope  []string          `json:"scope,omitempty"`
	Proof  *Proof            `json:"proof,omitempty"`
	Reason string            `json:"reason,omitempty"`
	Meta   map[string]string `json:"meta,omitempty"`
}

func (t *terms) encode() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic("grants: terms cannot be encoded: " + err.Error()) // they are strings and numbers
	}
	return string(text)
}

// parseTerms reads stored terms. What it does not understand, such as the terms
// of a newer gateway, allows nothing: it is an error.
func parseTerms(text string) (terms, error) {
	var t terms
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return terms{}, fmt.Errorf("grants: the terms cannot be read: %w", err)
	}
	if d.More() || len(t.Workspaces) == 0 || t.Hops < 0 {
		return terms{}, fmt.Errorf("grants: the terms are not those of a grant")
	}
	return t, nil
}

func workspaceSet(names []string) acl.WorkspaceSet {
	if slices.Contains(names, everything) {
		return acl.All()
	}
	return acl.Workspaces(names...)
}

// setNames is the other way of workspaceSet.
func setNames(s acl.WorkspaceSet) []string {
	if s.IsAll() {
		return []string{everything}
	}
	return s.Names()
}

// within reports whether every workspace of a is one of b.
func within(a, b acl.WorkspaceSet) bool {
	if b.IsAll() {
		return true
	}
	if a.IsAll() {
		return false
	}
	for _, ws := range a.Names() {
		if !b.Covers(ws) {
			return false
		}
	}
	return true
}

// compilePatterns returns nil for all addresses.
func compilePatterns(list []string) ([]*subject.Pattern, error) {
	if len(list) == 0 || slices.Contains(list, everything) {
		return nil, nil
	}
	all := make([]*subject.Pattern, len(list))
	for i, text := range list {
		p, err := policy.AddressPattern("resource_scope", text)
		if bad, ok := errors.AsType[*policy.InvalidError](err); ok {
			return nil, fmt.Errorf("%s %s", bad.Field, bad.Reason)
		} else if err != nil {
			return nil, err
		}
		all[i] = p
	}
	return all, nil
}
