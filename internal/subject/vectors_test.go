package subject

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// vectorFile is the file of test data: the one that AETHER_VECTORS names, else
// the repository's.
func vectorFile() string {
	if f := os.Getenv("AETHER_VECTORS"); f != "" {
		return f
	}
	return filepath.Join("..", "..", "testdata", "vectors.json")
}

func TestVectors(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(vectorFile())
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Matchers []struct {
			ID, System, Kind, Pattern, Why string
			Topic                          *string
			Expect                         any
		}
	}
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, v := range file.Matchers {
		g, ok := ParseGrammar(v.System)
		if !ok {
			continue // a validator of names
		}
		seen[v.System]++
		p, err := Compile(g, v.Pattern)
		var got any
		switch v.Kind {
		case "validate":
			got = "ok"
			var broken *Error
			if errors.As(err, &broken) {
				got = string(broken.Code)
			}
		case "match":
			got = p.Match(*v.Topic)
		case "covers":
			q, err := Compile(g, *v.Topic)
			got = err == nil && p.Covers(q)
		default:
			t.Errorf("%s: unknown kind %q", v.ID, v.Kind)
			continue
		}
		if got != v.Expect {
			t.Errorf("%s (%s): %s %s %q: %v, want %v (%v)", v.ID, v.Why, v.System, v.Kind, v.Pattern, got, v.Expect, err)
		}
	}
	for g := Segmented; g < grammarEnd; g++ {
		if seen[g.String()] == 0 {
			t.Errorf("there are no vectors for %s", g)
		}
	}
}
