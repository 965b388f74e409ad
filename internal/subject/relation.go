package subject

// Covers reports whether p takes all that q takes: whether a permission for p
// is one for q. It is false if it cannot be told.
func (p *Pattern) Covers(q *Pattern) bool {
	if !sameNames(p, q) || p.whole && !q.whole {
		return false
	}
	least := q.least()
	if p.tail == NoTail {
		if q.tail != NoTail || len(p.segments) != len(q.segments) {
			return false
		}
	} else if least < p.least() {
		return false
	}
	for i, s := range p.segments {
		// Behind the segments of q lies its tail, which is anything.
		if s.Any {
			continue
		}
		if i >= len(q.segments) || q.segments[i].Any || q.segments[i].Text != s.Text {
			return false
		}
	}
	return true
}

// Overlaps reports whether something is taken by both.
func (p *Pattern) Overlaps(q *Pattern) bool {
	if !sameNames(p, q) {
		return false
	}
	depth := max(p.least(), q.least())
	if !p.TakesDepth(depth) || !q.TakesDepth(depth) {
		return false
	}
	for i := range min(len(p.segments), len(q.segments)) {
		a, b := p.segments[i], q.segments[i]
		if !a.Any && !b.Any && a.Text != b.Text {
			return false
		}
	}
	return !emptyHidden(p, q) && !emptyHidden(q, p)
}

// emptyHidden reports whether p has an empty literal where q takes none.
func emptyHidden(p, q *Pattern) bool {
	if !q.whole {
		return false
	}
	for _, s := range p.segments {
		if !s.Any && s.Text == "" {
			return true
		}
	}
	return false
}

// sameNames reports whether two patterns are over the same names.
func sameNames(p, q *Pattern) bool {
	return p != nil && q != nil && p.grammar != 0 && q.grammar != 0 && p.separator == q.separator
}

// least is the smallest number of segments that the pattern takes.
func (p *Pattern) least() int {
	n := len(p.segments)
	if p.tail == OneOrMore || n == 0 {
		n++ // also the empty name has one segment, an empty one
	}
	return n
}
