package delivery_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// scenario is one list of steps of the file of test data.
type scenario struct {
	ID, Group, Why string
	Config         step
	Steps          []step
}

// step is one operation: its arguments by name, and what is expected of it.
type step map[string]any

func (sc *scenario) uses(op string) bool {
	return slices.ContainsFunc(sc.Steps, func(s step) bool { return s.str("op") == op })
}

// machine does what steps ask for, on what is tested. The result has the keys
// that the operation has in the file's description, encoded as JSON would be
// (numbers as int or float64, lists as []any or []string).
type machine interface {
	do(t *testing.T, op string, s step) map[string]any
}

func (s step) str(name string) string { v, _ := s[name].(string); return v }

func (s step) flag(name string) bool { v, _ := s[name].(bool); return v }

// num is a number of the step, or what holds without it.
func (s step) num(name string, otherwise int) int {
	if v, ok := s[name].(float64); ok {
		return int(v)
	}
	return otherwise
}

// vectorFile is the file of test data: the one that AETHER_VECTORS names, else
// the repository's.
func vectorFile() string {
	if f := os.Getenv("AETHER_VECTORS"); f != "" {
		return f
	}
	return filepath.Join("..", "..", "testdata", "vectors.json")
}

// runScenarios runs the scenarios of a group, each on a machine of its own.
func runScenarios(t *testing.T, group string, newMachine func(t *testing.T, config step) machine) {
	t.Helper()
	raw, err := os.ReadFile(vectorFile())
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Scenarios []scenario }
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, sc := range file.Scenarios {
		if sc.Group != group || sc.uses("reserve") {
			continue // slots are reserved where there are several writers: a ring has one
		}
		ran++
		t.Run(sc.ID, func(t *testing.T) {
			t.Parallel()
			r := &runner{t: t, why: sc.Why, machine: newMachine(t, sc.Config)}
			r.run(sc.Steps)
		})
	}
	if ran == 0 {
		t.Errorf("there are no vectors of group %s", group)
	}
}

type runner struct {
	t       *testing.T
	why     string
	machine machine
	done    int
}

func (r *runner) run(steps []step) {
	for _, s := range steps {
		op := s.str("op")
		switch {
		case op == "repeat":
			inner, _ := s["steps"].([]any)
			for i := range s.num("n", 0) {
				for _, x := range inner {
					r.one(numbered(x, i).(map[string]any))
				}
			}
		case op == "publish" && s["count"] != nil, op == "publish_each":
			for i := range s.num("count", 0) {
				each := numbered(map[string]any(s), s.num("start", 0)+i).(map[string]any)
				each["op"] = "publish"
				r.one(each)
			}
		default:
			r.one(s)
		}
	}
}

// numbered replaces {i} in every string.
func numbered(x any, i int) any {
	switch x := x.(type) {
	case string:
		return strings.ReplaceAll(x, "{i}", fmt.Sprint(i))
	case []any:
		list := make([]any, len(x))
		for k := range x {
			list[k] = numbered(x[k], i)
		}
		return list
	case map[string]any:
		m := map[string]any{}
		for k := range x {
			m[k] = numbered(x[k], i)
		}
		return m
	case step:
		return numbered(map[string]any(x), i)
	}
	return x
}

func (r *runner) one(s step) {
	r.t.Helper()
	r.done++
	got := r.machine.do(r.t, s.str("op"), s)
	want, _ := s["expect"].(map[string]any)
	if !expected(plain(got), want) {
		r.t.Fatalf("step %d, %v: got %v (%s)", r.done, map[string]any(s), got, r.why)
	}
}

// plain is a value as decoding JSON gives it.
func plain(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	return out
}

// expected compares the named keys only; the outcome {"nack": "*"} takes any
// reason.
func expected(got, want any) bool {
	w, ok := want.(map[string]any)
	if !ok {
		return want == "*" && got != nil || reflect.DeepEqual(got, want)
	}
	g, ok := got.(map[string]any)
	if !ok {
		return len(w) == 0
	}
	for k, v := range w {
		have, there := g[k]
		if !there || !expected(have, v) {
			return false
		}
	}
	return true
}
