package config

import (
	"cmp"
	"slices"
	"strings"
)

// Problem is one thing that is wrong, or, as a note, worth knowing.
type Problem struct {
	// Key is the key's dotted name, or what was taken for one; "" if the
	// problem is not of one key.
	Key string `json:"key"`
	// Source says where the value came from.
	Source Source `json:"source"`
	// Text says what is wrong and what is accepted. It holds no secret.
	Text string `json:"text"`
}

// String is the problem as one line.
func (p Problem) String() string {
	var b strings.Builder
	if p.Key != "" {
		b.WriteString(p.Key)
		if p.Source != (Source{}) && p.Source.Kind != FromDefault {
			b.WriteString(" (" + p.Source.String() + ")")
		}
		b.WriteString(": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// Problems is every problem of a configuration. It is an error with one line
// for each.
type Problems []Problem

// Error implements error.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// about reports whether one of the problems is of a key.
func (ps Problems) about(key string) bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return p.Key == key })
}

func (ps Problems) sorted() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Compare(a.Key, b.Key) })
	return ps
}

// suggest returns the name that is nearest to what was written, "" if none is
// near.
func suggest(written string, names []string) string {
	best, bestCost := "", len(written)/3+2
	for _, name := range names {
		cost := distance(written, name)
		// The right last part below a wrong section is near, too.
		if last := lastPart(name); cost > 1 && last == lastPart(written) && strings.Contains(written, ".") {
			cost = min(cost, 2)
		}
		if cost < bestCost {
			best, bestCost = name, cost
		}
	}
	return best
}

func lastPart(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// distance is the Levenshtein distance in bytes. Names that are much longer
// than any key cost their length.
func distance(a, b string) int {
	if len(a) > 80 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := diagonal
			if a[i-1] != b[j-1] {
				change++
			}
			diagonal = row[j]
			row[j] = min(change, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
