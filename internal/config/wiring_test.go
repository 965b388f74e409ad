package config

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/aether-gateway/gateway/internal/wiring"
)

// scenario is one of the vectors about declarations.
type scenario struct {
	ID, Group, Why string
	Config         struct {
		Name          *string
		Backend       string
		ImplSelection string `json:"impl_selection"`
		Policies      map[string]any
		Receivers     []struct{ Mode, Group string }
		Pipelines     []struct {
			ID                  string
			Consumes, Publishes []string
		}
	}
	Steps []struct {
		Op     string
		Expect map[string]any
	}
}

func scenarios(t *testing.T, group string) (list []scenario) {
	t.Helper()
	file := os.Getenv("AETHER_VECTORS")
	if file == "" {
		file = filepath.Join("..", "..", "testdata", "vectors.json")
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all struct{ Scenarios []json.RawMessage }
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, raw := range all.Scenarios {
		var s scenario
		if err := json.Unmarshal(raw, &struct{ Group *string }{&s.Group}); err != nil || s.Group != group {
			continue
		}
		if err := json.Unmarshal(raw, &s); err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		list = append(list, s)
	}
	if len(list) == 0 {
		t.Fatalf("there are no vectors of the group %s", group)
	}
	return list
}

// renamed are the vectors' names of options, and ours.
var renamed = map[string]string{
	"balanced.queue_capacity": "capacity.queue", "balanced.on_full": "queue_on_full",
	"broadcast.queue_capacity": "capacity.ring", "broadcast.on_lag": "on_lag", "broadcast.ack_mode": "ack.mode",
	"ack_propagation": "ack", "ack_propagation.mode": "ack.tracking", "ack_propagation.max_in_flight": "ack.max_in_flight",
	"ack_propagation.timeout_ms": "ack.timeout",
}

// entryOf is the policies of a vector as an entry of topics.
func entryOf(policies map[string]any) map[string]any {
	entry := map[string]any{}
	put := func(path string, v any) {
		ours := renamed[path]
		if ours == "" {
			ours = path
		}
		if n, ok := v.(float64); ok && ours == "ack.timeout" {
			v = strconv.Itoa(int(n)) + "ms"
		}
		section, name, nested := strings.Cut(ours, ".")
		if !nested {
			entry[section] = v
			return
		}
		if _, ok := entry[section].(map[string]any); !ok {
			entry[section] = map[string]any{}
		}
		entry[section].(map[string]any)[name] = v
	}
	for _, name := range slices.Sorted(maps.Keys(policies)) {
		block, ok := policies[name].(map[string]any)
		if !ok {
			put(name, policies[name])
			continue
		}
		for option, v := range block {
			put(name+"."+option, v)
		}
	}
	return entry
}

// order is that in which the vectors check.
var order = []wiring.Code{
	wiring.NameEmpty, wiring.UnknownField, wiring.WrongType, wiring.UnknownValue, wiring.QueueCapacityZero, wiring.RingCapacityZero,
	wiring.MaxInFlightZero, wiring.TimeoutZero, "unsupported_backend", wiring.AllRequiresBroadcast, wiring.AllRequiresDisconnect, wiring.AllRequiresTracking,
}

func (s *scenario) validate() map[string]any {
	entry := entryOf(s.Config.Policies)
	entry["address"] = "ga::w"
	if s.Config.Name != nil && strings.TrimSpace(*s.Config.Name) == "" {
		entry["address"] = *s.Config.Name
	}
	topics, err := parseTopics([]any{entry})
	var found faults
	errors.As(err, &found)
	var readers []wiring.Reader
	for _, r := range s.Config.Receivers {
		readers = append(readers, wiring.Reader{Mode: wiring.Mode(r.Mode), Group: r.Group})
	}
	mode := wiring.Infer(readers)
	if s.Config.ImplSelection == "force_mixed" {
		mode = wiring.Mixed
	}
	found = append(found, topics[0].Judge("", mode)...)
	if s.Config.Backend != "" && !slices.Contains([]string{"memory", "in_memory", "inmemory", "in-memory", "local"}, s.Config.Backend) {
		found = append(found, wiring.Fault{Code: "unsupported_backend"})
	}
	for _, code := range order {
		if slices.ContainsFunc(found, func(f wiring.Fault) bool { return f.Code == code }) {
			return map[string]any{"error": string(code)}
		}
	}
	d := topics[0].Settings
	return map[string]any{"ok": map[string]any{"mode": string(mode), "policies": map[string]any{
		"balanced":  map[string]any{"queue_capacity": float64(d.Queue), "on_full": string(d.OnFull)},
		"broadcast": map[string]any{"queue_capacity": float64(d.Ring), "on_lag": string(d.OnLag), "ack_mode": string(d.Ack.Mode)},
		"ack_propagation": map[string]any{
			"mode": string(d.Ack.Tracking), "max_in_flight": float64(d.Ack.MaxInFlight), "timeout_ms": float64(d.Ack.Timeout.Milliseconds()),
		},
	}}}
}

// subset reports whether got has all that want names.
func subset(want, got any) bool {
	w, ok := want.(map[string]any)
	if !ok {
		return cmp.Equal(want, got)
	}
	g, ok := got.(map[string]any)
	for k, v := range w {
		ok = ok && subset(v, g[k])
	}
	return ok
}

func TestConfigVectors(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios(t, "config") {
		for _, step := range s.Steps {
			if got := s.validate(); step.Op != "validate" || !subset(step.Expect, got) {
				t.Errorf("%s (%s): %s: got %v, want %v", s.ID, s.Why, step.Op, got, step.Expect)
			}
		}
	}
}

func TestWiringVectors(t *testing.T) {
	t.Parallel()
	for _, s := range scenarios(t, "wiring") {
		var list []wiring.Pipeline
		for _, p := range s.Config.Pipelines {
			list = append(list, wiring.Pipeline(p))
		}
		cycles := wiring.FindCycles(list, nil)
		got := map[string]any{"ok": true}
		var nodes []string
		if len(cycles) > 0 {
			got, nodes = map[string]any{"error": "cycle"}, slices.Compact(slices.Sorted(slices.Values(cycles[0])))
		}
		for _, step := range s.Steps {
			want := maps.Clone(step.Expect)
			var wanted []string
			for _, node := range asList(want["path"]) {
				wanted = append(wanted, node.(string))
			}
			delete(want, "path")
			slices.Sort(wanted)
			if !cmp.Equal(want, got) || !slices.Equal(slices.Compact(wanted), nodes) {
				t.Errorf("%s (%s): got %v %v, want %v", s.ID, s.Why, got, cycles, step.Expect)
			}
		}
	}
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
}

// Every fault of topics and routes, with its path, its value and what would do.
func TestTopicsAndRoutes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		yaml string
		want []string // each problem's key, and a part of its text after a blank
	}{
		{"topics: {}", []string{"topics is keys and values"}},
		{"topics: {ga: {capacity: 1}}", []string{"topics has keys below it; accepted is a list"}},
		{"topics: [3, {}]", []string{"topics[0] is 3; accepted", "topics[1] names no topic"}},
		{"topics: [{prefix: ga, capacity: many, on_lag: 3, max_bytes: 1}]", []string{`topics[0].capacity is "many"`, "topics[0].max_bytes 1 is out of range", "topics[0].on_lag is 3; accepted is drop_oldest, disconnect"}},
		{"topics: [{prefix: ga, capacity: -1}]", []string{"topics[0].capacity -1 is out of range; accepted is 1 to"}},
		{"topics: [{prefix: ga, capcity: 3, ack: auto}]", []string{`topics[0].ack is "auto"; accepted are options`, "topics[0].capcity did you mean capacity?"}},
		{"topics: [{prefix: xx}, {address: nowhere}, {workspace: receiver0}, {prefix: ga, address: 'ga::w'}]", []string{
			`topics[0].prefix is "xx"`, `topics[1].address is "nowhere"`, `topics[2].workspace is "receiver0"`, "topics[3].address beside a prefix",
		}},
		{"topics: [{prefix: ga}, {prefix: ga}]", []string{"topics[1] declared by [0] already"}},
		{"topics: [{prefix: ag, on_lag: disconnect, queue_on_full: block, capacity: 3}]", []string{"topics[0].capacity has no effect", "topics[0].on_lag read from the log", "topics[0].queue_on_full has no effect"}},
		{"topics: [{prefix: us, workspace: w}]", []string{"topics[0].workspace accepted is the prefix alone"}},
		{"topics: [{prefix: ga, on_lag: disconnect, ack: {mode: all, timeout: 2h}}]", []string{"topics[0].ack.mode ack.tracking", "topics[0].ack.timeout 2h0m0s is out of range"}},
		{"topics: [{prefix: ga, ack: {timeout: 5, max_in_flight: 0}}]", []string{"topics[0].ack.max_in_flight 0 leaves no room", "topics[0].ack.timeout is 5; accepted is a duration"}},
		{"topics: [{workspace: w, on_lag: disconnect, ack: {mode: all, tracking: auto}}]", []string{"topics[0].ack.mode only broadcast readers"}},
		{"runtime: {max_bytes: 1MiB}\ntopics: [{prefix: ga, max_bytes: 600KiB}, {prefix: tb, max_bytes: 600KiB}]", []string{"topics 2 topics declare buffers of 1228800 bytes in all"}},
		{"routes: [{}]", []string{"routes[0].from is not set", "routes[0].principal is not set", "routes[0].to is not set"}},
		{"routes: [{from: 'pg::w', to: 'tb::w::i', principal: 'ag::w::i::s'}]", []string{`routes[0].from "pg::w" is progress`, `routes[0].principal is "ag::w::i::s"; accepted is the address of a service`}},
		{"routes: [{from: 'us::w', to: 'tb', principal: 'sv::a::b', filter: 'a..b', grammar: glob, workspaces: [1]}]", []string{
			`routes[0].filter is "a..b"`, "routes[0].from neither an address", `routes[0].grammar is "glob"; accepted are strict, subtree, segmented`, `routes[0].to is "tb"`, "routes[0].workspaces is a list",
		}},
		{"routes: [{from: 'ga::w', to: 'event::w', principal: 'sv::a::b'}]", []string{`routes[0].to "event::w" is no address that a service may send to`}},
		{"routes: [{from: 'ga::w', to: 'ga::v', principal: 'sv::a::b', workspaces: [w]}]", []string{"routes[0].workspaces [w] leaves out v"}},
		{"routes: [{from: 'ga::w', to: 'ga::w', principal: 'sv::a::b'}]", []string{"routes[0] ga::w → ga::w > ga::w → ga::w is a cycle"}},
		{"routes: [{name: a, from: 'ga::w', to: 'ga::v', principal: 'sv::a::b'}, {name: a, from: 'ga::w', to: 'ga::x', principal: 'sv::a::b'}]", []string{`routes[1].name "a" is the name of routes[0] already`}},
		// What is right.
		{"topics: [{prefix: tb, observers: true, capacity: {queue: 7, ring: 9}}, {prefix: ga, workspace: w, on_lag: disconnect, ack: {mode: all, tracking: auto}}]", nil},
		{"routes: [{from: 'ag::w', to: 'tb::v::i', principal: 'sv::a::b', filter: 'a.*', grammar: subtree, workspaces: '*'}, {from: 'metric::*', to: 'sv::a::c', principal: 'sv::a::b'}]", nil},
	} {
		_, err := Load(Options{Mode: Serve, Environ: required, File: writeFile(t, test.yaml)})
		var ps Problems
		errors.As(err, &ps)
		for i, p := range ps {
			if i < len(test.want) {
				key, part, _ := strings.Cut(test.want[i], " ")
				if p.Key == key && strings.Contains(p.Text, part) {
					continue
				}
			}
			t.Errorf("%s: problem %d is %s", test.yaml, i, p)
		}
		if len(ps) < len(test.want) {
			t.Errorf("%s: %d problems, want %d: %v", test.yaml, len(ps), len(test.want), ps)
		}
	}
}

// What is printed of topics and routes can be set again, and means the same.
func TestTopicsAndRoutesArePrinted(t *testing.T) {
	t.Parallel()
	first, err := Load(Options{Mode: Dev, File: writeFile(t, `
topics:
  - {prefix: tb, observers: true, capacity: {queue: 7}, queue_on_full: drop_newest}
  - {address: "ga::w", capacity: 3, max_bytes: 1MiB, on_lag: disconnect, ack: {mode: all, tracking: auto, timeout: 1m}}
routes:
  - {from: "metric::*", to: "tb::v::i", principal: "sv::a::b", filter: "a.*", workspaces: [v, "w"]}
`)})
	if err != nil {
		t.Fatal(err)
	}
	var environ []string
	for _, e := range first.Entries() {
		if e.Key == "topics" || e.Key == "routes" {
			environ = append(environ, EnvName(e.Key)+"="+e.Value)
		}
	}
	second, err := Load(Options{Mode: Dev, Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	compare := cmp.Comparer(func(a, b wiring.Route) bool {
		return a.Name == b.Name && a.From == b.From && a.To == b.To && a.Principal == b.Principal && a.Filter.String() == b.Filter.String() &&
			slices.Equal(a.Workspaces, b.Workspaces)
	})
	if diff := cmp.Diff(first.Routes, second.Routes, compare); diff != "" {
		t.Error(diff)
	}
	for i := range first.Topics {
		if a, b := first.Topics[i], second.Topics[i]; a.Settings != b.Settings || a.String() != b.String() || a.Observers != b.Observers {
			t.Errorf("%+v became %+v", a, b)
		}
	}
	notes := first.Notes()
	if !slices.ContainsFunc(notes, func(p Problem) bool {
		return p.Key == "routes[0].filter" && strings.Contains(p.Text, "grammar: subtree")
	}) {
		t.Errorf("nothing is said of a pattern that looks like a subtree: %v", notes)
	}
}
