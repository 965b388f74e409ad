package delivery_test

import (
	"testing"

	"github.com/aether-gateway/gateway/internal/delivery/route"
	"github.com/aether-gateway/gateway/internal/subject"
)

func TestRoutedVectors(t *testing.T) {
	t.Parallel()
	runScenarios(t, "routed", func(_ *testing.T, config step) machine { return &routes{config: config, open: map[string]*openRoute{}} })
}

// routes is a set of open routes.
type routes struct {
	config step
	open   map[string]*openRoute
}

type openRoute struct {
	*route.Route[routed]
	pattern *subject.Pattern
	gate    string
}

type routed struct {
	label, principal string
	cost             int
}

func (m *routes) do(t *testing.T, op string, s step) map[string]any {
	r := m.open[s.str("route")]
	switch op {
	case "route_open":
		m.openRoute(t, s)
	case "route_close":
		delete(m.open, s.str("route"))
	case "routes":
		return map[string]any{"count": len(m.open)}
	case "gate":
		for _, r := range m.open {
			if r.gate != s.str("gate") {
				continue
			}
			if s.str("state") == "open" {
				r.Open()
			} else {
				r.Shut()
			}
		}
	case "publish":
		return m.publish(s)
	case "publish_event":
		return map[string]any{"matched": 0} // it is no message
	case "pop":
		item, ok := r.Pop()
		if !ok {
			return map[string]any{"m": nil}
		}
		return map[string]any{"m": item.label}
	case "pop_n":
		var got []any
		per := map[string]int{}
		for range s.num("n", 0) {
			if item, ok := r.Pop(); ok {
				got = append(got, item.label)
				per[item.principal]++
			} else {
				got = append(got, nil)
			}
		}
		return map[string]any{"order": got, "per_principal": per}
	case "drain":
		return drain(r, s.num("budget", 0))
	case "state":
		return state(r)
	case "classify":
		return map[string]any{"class": route.ClassOf([]byte(s.str("principal"))).String()}
	default:
		t.Fatalf("unknown operation %q", op)
	}
	return nil
}

func (m *routes) openRoute(t *testing.T, s step) {
	pattern, err := subject.Compile(subject.Subtree, s.str("pattern"))
	if err != nil {
		t.Fatal(err)
	}
	o := route.Options{
		Budget: m.config.num("budget", 0), PerPrincipal: m.config.num("count_cap", 0), Quantum: m.config.num("quantum", 0),
		Principals: 1 << 20, Fattest: m.config.str("evict") == "fattest", Shut: s["gate"] != nil,
	}
	if scope, ok := s["scope"].(map[string]any); ok {
		for kind, p := range scope {
			o.Scope = route.Scope{Principal: []byte(p.(string)), AndSystem: kind == "principal_or_system"}
		}
	}
	r := &openRoute{Route: route.New[routed](o, nil), pattern: pattern, gate: s.str("gate")}
	m.open[s.str("route")] = r
}

func (m *routes) publish(s step) map[string]any {
	item := routed{s.str("m"), s.str("principal"), s.num("cost", 0)}
	res := map[string]any{"accepted": false, "evicted": []string{}, "woke": false}
	matched := 0
	for _, r := range m.open {
		if !r.pattern.Match(s.str("topic")) {
			continue
		}
		matched++
		var before []routed
		expect, _ := s["expect"].(map[string]any)
		if _, asked := expect["evicted"]; asked {
			before = r.waiting()
		}
		got := r.Push([]byte(item.principal), item.cost, item)
		res["accepted"], res["woke"] = got.Reject == route.Taken, got.Woke
		res["reject"] = [...]any{route.Taken: nil, route.Oversize: "oversize", route.Foreign: "scope", route.AtGate: "gate"}[got.Reject]
		left := map[routed]bool{}
		if before != nil {
			for _, x := range r.waiting() {
				left[x] = true
			}
		}
		evicted := []string{}
		for _, x := range before {
			if !left[x] {
				evicted = append(evicted, x.label)
			}
		}
		if len(evicted) == got.Evicted {
			res["evicted"] = evicted
		}
	}
	res["matched"] = matched
	return res
}

// waiting is what waits, by principal and age.
func (r *openRoute) waiting() (list []routed) {
	r.Each(func(item routed) { list = append(list, item) })
	return list
}

func drain(r *openRoute, budget int) map[string]any {
	items, bytes, _ := r.Drain(nil, 1<<20, budget)
	order, per, perOrder, last := []string{}, map[string]int{}, map[string][]string{}, any(nil)
	for _, x := range items {
		order = append(order, x.label)
		per[x.principal]++
		perOrder[x.principal] = append(perOrder[x.principal], x.label)
		last = x.label
	}
	return map[string]any{
		"order": order, "count": len(items), "bytes": bytes, "per_principal": per, "per_principal_order": perOrder, "last": last,
	}
}

func state(r *openRoute) map[string]any {
	s := r.Stats()
	queued, lengths := map[string][]string{}, map[string]int{}
	for _, x := range r.waiting() {
		queued[x.principal] = append(queued[x.principal], x.label)
		lengths[x.principal]++
	}
	var evicted, oversize uint64
	for c := range s.Evicted {
		evicted += s.Evicted[c]
		oversize += s.Oversize[c]
	}
	return map[string]any{
		"active_principals": s.Principals, "bytes": s.Bytes, "queued": queued, "len": lengths,
		"counters": map[string]any{"evicted": evicted, "oversize": oversize},
	}
}
