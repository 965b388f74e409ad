package metrics

import (
	"github.com/aether-gateway/gateway/internal/acl"
)

const (
	// OK is the reason of what succeeded.
	OK = "ok"
	// Other is what a value from outside a label's set is counted as.
	Other = "other"
)

// Family describes one metric.
type Family struct {
	Name, Type, Help string
	Labels           []Label
}

// Label is a label with the only values that it takes; nil for one whose value
// is a fact about the program.
type Label struct {
	Name   string
	Values []string
}

func (f Family) labelNames() []string {
	names := make([]string, len(f.Labels))
	for i, l := range f.Labels {
		names[i] = l.Name
	}
	return names
}

var (
	kindLabel  = Label{"kind", kindValues()}
	codeValues = []string{
		OK, "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists", "permission_denied",
		"resource_exhausted", "failed_precondition", "aborted", "out_of_range", "unimplemented", "internal", "unavailable", "data_loss",
		"unauthenticated", Other,
	}
)

var (
	famSessions = Family{
		"aether_sessions", "gauge", "Sessions that are connected now.",
		[]Label{kindLabel},
	}
	famConnects = Family{
		"aether_connects_total", "counter", "Attempts to connect, by the status that they got.",
		[]Label{kindLabel, {"reason", codeValues}},
	}
	famEnds = Family{
		"aether_session_ends_total", "counter", "Sessions that ended, by their status.",
		[]Label{kindLabel, {"reason", codeValues}},
	}
	famReady = Family{"aether_ready", "gauge", "1 if the gateway is ready, else 0.", nil}
	famBuild = Family{
		"aether_build_info", "gauge", "Always 1; the label names the program's version.",
		[]Label{{"version", nil}},
	}
)

// Families lists all metrics but those of Go and the process.
func Families() []Family {
	all := []Family{famSessions, famConnects, famEnds}
	for _, c := range counts {
		all = append(all, c.family)
	}
	return append(all, famReady, famBuild)
}

func kindValues() []string {
	values := []string{acl.KindUnknown.String()}
	for _, k := range acl.Kinds() {
		values = append(values, k.String())
	}
	return append(values, Other)
}
