package subject

import "slices"

// Filter is what a subscriber takes: what any of its patterns takes. Nil takes
// everything. It is immutable and safe for concurrent use.
type Filter struct {
	patterns []*Pattern // distinct, in the order of their texts
}

// NewFilter compiles patterns of the grammar [Segmented]. A repeated one counts
// once. No pattern at all, and one that takes everything, is the filter that
// takes everything: nil. The error is an [*Error].
func NewFilter(texts ...string) (*Filter, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	texts = slices.Clone(texts)
	slices.Sort(texts)
	texts = slices.Compact(texts)
	f := &Filter{patterns: make([]*Pattern, 0, len(texts))}
	everything := false
	for _, text := range texts {
		p, err := Compile(Segmented, text)
		if err != nil {
			return nil, err
		}
		everything = everything || len(p.segments) == 0
		f.patterns = append(f.patterns, p)
	}
	if everything {
		return nil, nil
	}
	return f, nil
}

// Patterns are the distinct patterns, none if everything is taken. The caller
// must not change them.
func (f *Filter) Patterns() []*Pattern {
	if f == nil {
		return nil
	}
	return f.patterns
}

// Match reports whether the filter takes a message of that subject, "" for one
// without. It allocates nothing.
func (f *Filter) Match(s []byte) bool {
	if f == nil {
		return true
	}
	for _, p := range f.patterns {
		if p.MatchBytes(s) {
			return true
		}
	}
	return false
}
