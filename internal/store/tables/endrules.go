package tables

import (
	"strings"

	"github.com/aether-gateway/gateway/internal/store"
)

// inWorkspace are the prefixes behind which a workspace stands: in addresses and
// identities, by which tasks and grants are named too, and in names of keys. In
// uw it stands at the end.
var inWorkspace = []string{
	"ag::", "tu::", "ta::", "tb::", "ga::", "gu::", "pg::", "event::", "metric::",
	"workspace::", "user_workspace::", "workspace_exclusive::", "user_workspace_shared::",
}

// ofIdentity are the prefixes behind which names of keys have the identity whose
// they are.
var ofIdentity = []string{"global_exclusive::", "checkpoint::"}

// namesWorkspace reports whether a pattern names a workspace literally.
func namesWorkspace(pattern, workspace string) bool {
	for _, prefix := range ofIdentity {
		if rest, ok := strings.CutPrefix(pattern, prefix); ok {
			pattern = rest
			break
		}
	}
	for _, prefix := range inWorkspace {
		rest, ok := strings.CutPrefix(pattern, prefix)
		if ok && (rest == workspace || strings.HasPrefix(rest, workspace+"::")) {
			return true
		}
	}
	return strings.HasPrefix(pattern, "uw::") && strings.HasSuffix(pattern, "::"+workspace)
}

// endRules removes the rules that name a workspace: what they opened must not be
// open in another one of its name. Rules with wildcards in its place stay.
func endRules(w Writer, workspace string) error {
	if _, err := take(w, rulesCounter, 1); err != nil {
		return err
	}
	all, err := readRules(w, selectAll)
	if err != nil {
		return err
	}
	var total int64
	for _, r := range all {
		if !namesWorkspace(r.Address, workspace) && !namesWorkspace(r.Principal, workspace) {
			continue
		}
		changed, err := w.Exec(deleteRule, r.ID)
		if err != nil {
			return err
		}
		total += changed
	}
	return tell(w, total, nil, store.SubjectRules)
}
