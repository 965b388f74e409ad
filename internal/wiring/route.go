package wiring

import (
	"strings"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/subject"
)

// MaxRoutes bounds how many routes may be declared: each is asked about every
// message of where it takes from.
const MaxRoutes = 256

// MaxHops is how often a message may be forwarded.
const MaxHops = 8

// Source is where a route takes messages from: one address, or all with a prefix
// in a workspace.
type Source struct {
	text string
	// begins is what addresses begin with, "" if it is one address.
	begins string
}

// ParseSource reads an address, or PREFIX::WORKSPACE. why says what is wrong with
// it, "" if nothing is.
func ParseSource(text string) (s Source, why string) {
	if a, err := address.Parse(text); err == nil {
		switch {
		case a.Prefix() == address.PrefixProgress:
			return s, "is progress, which is not forwarded"
		case a.Prefix() == address.PrefixMetric && !a.IsMetricAny():
			return s, "is not an address of its own: all metrics are metric::*"
		case a.IsMetricAny():
			a = address.MetricReceiver()
		}
		return Source{text: a.String()}, ""
	}
	prefix, workspace, ok := strings.Cut(text, "::")
	if ok && address.ValidWorkspace(workspace) == nil {
		for _, p := range []address.Prefix{address.PrefixAgent, address.PrefixUniqueTask, address.PrefixTask, address.PrefixTaskBroadcast} {
			if prefix == p.String() {
				return Source{text: text, begins: text + "::"}, ""
			}
		}
	}
	return s, "is neither an address nor one of ag, tu, ta, tb with a workspace"
}

// String is the source as it is declared.
func (s Source) String() string { return s.text }

// Address returns the one address that it is; ok is false if it is several.
func (s Source) Address() (name string, ok bool) { return s.text, s.begins == "" }

// Takes reports whether an address is one of the source.
func (s Source) Takes(topic string) bool {
	if s.begins == "" {
		return topic == s.text
	}
	return strings.HasPrefix(topic, s.begins)
}

// TakesBytes is Takes for bytes.
func (s Source) TakesBytes(topic []byte) bool {
	if s.begins == "" {
		return string(topic) == s.text
	}
	return len(topic) > len(s.begins) && string(topic[:len(s.begins)]) == s.begins
}

// Route forwards messages from a source to an address, under the permissions of
// a service.
type Route struct {
	// Name identifies the route, also over restarts and among gateways: where
	// it stands in the log is kept under it.
	Name string
	From Source
	// Filter is compared with the subject; nil takes all, also without one.
	Filter    *subject.Pattern
	To        address.Address
	Principal address.Address
	// Workspaces are those that the principal acts in; empty: of From and To.
	Workspaces []string
}

// Takes reports whether the route forwards a message. It allocates nothing
// unless there is a filter.
func (r *Route) Takes(topic, subject []byte) bool {
	return r.From.TakesBytes(topic) && (r.Filter == nil || r.Filter.Match(string(subject)))
}

// Covers is the set of workspaces that the principal acts in.
func (r *Route) Covers() acl.WorkspaceSet {
	if len(r.Workspaces) > 0 {
		if len(r.Workspaces) == 1 && r.Workspaces[0] == "*" {
			return acl.All()
		}
		return acl.Workspaces(r.Workspaces...)
	}
	return acl.Workspaces(r.To.Workspace(), r.From.workspace())
}

func (s Source) workspace() string {
	if a, err := address.Parse(s.text); err == nil {
		return a.Workspace()
	}
	_, ws, _ := strings.Cut(s.text, "::")
	return ws
}

// JudgeRoutes reports what is wrong with declared routes: of one that its
// principal may never take, of two with one name, and cycles. Filters are not
// looked at for the latter.
func JudgeRoutes(routes []Route) []Fault {
	var faults []Fault
	if len(routes) > MaxRoutes {
		faults = append(faults, faultf("", OutOfRange, "%d routes are too many; accepted are at most %d", len(routes), MaxRoutes))
	}
	seen := map[string]int{}
	pipelines := make([]Pipeline, 0, len(routes))
	sources := map[string]Source{}
	for i := range routes {
		r := &routes[i]
		if j, twice := seen[r.Name]; twice {
			faults = append(faults, faultf(at(i)+".name", Twice, "%q is the name of routes%s already; accepted is a name of its own", r.Name, at(j)))
		} else {
			seen[r.Name] = i
		}
		if !r.Principal.IsZero() && !r.To.IsZero() {
			faults = append(faults, r.judge(at(i))...)
		}
		if r.To.IsZero() || r.From.text == "" {
			continue
		}
		sources[r.From.text] = r.From
		pipelines = append(pipelines, Pipeline{ID: r.Name, Consumes: []string{r.From.text}, Publishes: []string{r.To.String()}})
	}
	for _, way := range FindCycles(pipelines, func(consumed, published string) bool { return sources[consumed].Takes(published) }) {
		names := make([]string, 0, len(way))
		for _, node := range way {
			names = append(names, strings.TrimPrefix(node, "topic:"))
		}
		faults = append(faults, faultf(at(seen[way[1]]), Cycle, "%s is a cycle; accepted are routes by which no message comes back to where it was: remove one of %s",
			strings.Join(names, " → "), strings.Join(steps(way), ", ")))
	}
	return faults
}

// steps are the pipelines of a way.
func steps(way []string) (ids []string) {
	for i := 1; i < len(way); i += 2 {
		ids = append(ids, way[i])
	}
	return ids
}

// judge reports what the route's principal may never do, whatever rules say.
func (r *Route) judge(path string) []Fault {
	if !acl.CanOpen(acl.Service, r.To.Prefix()) {
		return []Fault{faultf(path+".to", NotPermitted, "%q is no address that a service may send to; accepted are those with prefix ag, ga, tu, ta, tb, and sv and br by a rule", r.To)}
	}
	if ws := r.To.Workspace(); ws != "" && !r.Covers().Covers(ws) {
		return []Fault{faultf(path+".workspaces", NotPermitted, "[%s] leaves out %s, where the route goes to; accepted are lists with it, or \"*\"", r.Covers(), ws)}
	}
	return nil
}
