package subject

import (
	"strings"
	"unsafe"
)

// Match reports whether the pattern takes s. It allocates nothing.
func (p *Pattern) Match(s string) bool {
	if p == nil || p.grammar == 0 || p.maxBytes > 0 && len(s) > p.maxBytes {
		return false
	}
	// rest is what is left to read; more says that a segment begins there, which
	// may be an empty one.
	rest, more := s, true
	for i := range p.steps {
		if !more {
			return false
		}
		step := &p.steps[i]
		var end int
		if step.Any {
			if end = p.next(rest); end == 0 && p.whole {
				return false
			}
		} else {
			end = len(step.Text)
			if len(rest) < end || rest[:end] != step.Text {
				return false
			}
		}
		if len(rest) == end {
			more = false
			continue
		}
		if !strings.HasPrefix(rest[end:], p.separator) {
			return false // the literal is the beginning of a longer segment
		}
		rest = rest[end+len(p.separator):]
	}
	switch p.tail {
	case NoTail:
		return !more
	case OneOrMore:
		if !more {
			return false
		}
	}
	return !more || !p.whole || p.guarded(rest)
}

// MatchBytes is Match for bytes that nobody changes meanwhile.
func (p *Pattern) MatchBytes(s []byte) bool {
	// Match keeps nothing of it, and a conversion would allocate.
	return p.Match(unsafe.String(unsafe.SliceData(s), len(s)))
}

// next returns where the first segment of s ends.
func (p *Pattern) next(s string) int {
	var end int
	if p.separator == dot {
		end = strings.IndexByte(s, '.')
	} else {
		end = strings.Index(s, p.separator)
	}
	if end < 0 {
		return len(s)
	}
	return end
}

// guarded reports whether what the tail takes is within the guards.
func (p *Pattern) guarded(rest string) bool {
	for n := len(p.segments) + 1; n <= p.maxSegments; n++ {
		end := p.next(rest)
		if end == 0 {
			return false
		}
		if end == len(rest) {
			return true
		}
		rest = rest[end+len(p.separator):]
	}
	return false
}
