package subject

import "strings"

// Tail is what may follow the segments of a pattern.
type Tail uint8

// The tails.
const (
	NoTail     Tail = iota
	ZeroOrMore      // any number of segments
	OneOrMore       // at least one segment
)

// Segment is one segment of a compiled pattern.
type Segment struct {
	Any  bool   // any segment
	Text string // if not any
}

// Pattern is a compiled pattern. It is immutable and safe for concurrent use.
// The zero value and nil match nothing.
type Pattern struct {
	text      string
	grammar   Grammar
	separator string
	segments  []Segment
	tail      Tail
	// steps are the segments with neighbouring literals joined: they are
	// compared at once.
	steps []Segment
	// Guards. maxBytes and maxSegments are 0 for no bound; whole says that
	// nothing with an empty segment matches.
	maxBytes, maxSegments int
	whole                 bool
}

const (
	dot    = "."
	colons = "::"
)

// Compile compiles a pattern over subjects, whose segments "." separates. The
// error is an [*Error].
func Compile(g Grammar, text string) (*Pattern, error) {
	return compile(g, text, dot, MaxBytes)
}

// CompileAddress compiles a pattern over addresses or identities, whose
// segments "::" separates. The error is an [*Error].
func CompileAddress(g Grammar, text string) (*Pattern, error) {
	return compile(g, text, colons, MaxAddressBytes)
}

func compile(g Grammar, text, separator string, maxBytes int) (*Pattern, error) {
	p := &Pattern{text: text, grammar: g, separator: separator}
	switch g {
	case Segmented:
	case Subtree, Strict:
		p.maxBytes, p.maxSegments, p.whole = maxBytes, MaxSegments, true
	default:
		return nil, &Error{Code: UnknownGrammar}
	}
	if len(text) > maxBytes {
		return nil, &Error{Code: TooLong}
	}
	if text == "" {
		if p.whole {
			return nil, &Error{Code: Empty}
		}
		p.tail = ZeroOrMore
		return p, nil
	}
	// Bounded by maxBytes.
	parts := strings.Split(text, separator)
	for i, part := range parts {
		last := i == len(parts)-1
		if code := p.check(part, i, last); code != "" {
			return nil, &Error{Code: code, Segment: i + 1}
		}
		switch {
		case g == Segmented && part == "#":
			p.tail = ZeroOrMore
		case g == Subtree && part == "*" && last && i > 0:
			p.tail = OneOrMore
		case part == "*":
			p.segments = append(p.segments, Segment{Any: true})
		default:
			p.segments = append(p.segments, Segment{Text: part})
		}
	}
	p.steps = joined(p.segments, separator)
	return p, nil
}

// check finds the first rule that a segment breaks.
func (p *Pattern) check(part string, i int, last bool) Code {
	switch {
	case p.maxSegments > 0 && i >= p.maxSegments:
		return TooDeep
	case p.whole && part == "":
		return EmptySegment
	case p.separator == colons && part != "" && (part[0] == ':' || part[len(part)-1] == ':'):
		return ColonAtEdge
	case p.grammar != Segmented:
		return "" // all else is literal
	case part != "*" && strings.Contains(part, "*"):
		return StarNotAlone
	case part != "#" && strings.Contains(part, "#"):
		return HashNotAlone
	case part == "#" && !last:
		return HashNotFinal
	}
	return ""
}

func joined(segments []Segment, separator string) (steps []Segment) {
	for _, s := range segments {
		if n := len(steps); n > 0 && !s.Any && !steps[n-1].Any {
			steps[n-1].Text += separator + s.Text
			continue
		}
		steps = append(steps, s)
	}
	return steps
}

// String is the pattern as it was written.
func (p *Pattern) String() string {
	if p == nil {
		return ""
	}
	return p.text
}

// Grammar is the one that the pattern was compiled by.
func (p *Pattern) Grammar() Grammar { return p.grammar }

// Segments are the compiled segments, without the tail. The caller must not
// change them.
func (p *Pattern) Segments() []Segment { return p.segments }

// Tail is what may follow the segments.
func (p *Pattern) Tail() Tail { return p.tail }

// MeantAsSubtree reports whether the pattern ends with a "*" that takes one
// segment only, although whoever wrote it may have meant all that lies below.
// It is no error: the pattern means what its grammar says.
func (p *Pattern) MeantAsSubtree() bool {
	n := len(p.segments)
	return p.grammar == Strict && n > 1 && p.segments[n-1].Any
}

// TakesDepth reports whether something of that many segments can match.
func (p *Pattern) TakesDepth(n int) bool {
	if p.maxSegments > 0 && n > p.maxSegments {
		return false
	}
	switch p.tail {
	case ZeroOrMore:
		return n >= len(p.segments)
	case OneOrMore:
		return n > len(p.segments)
	}
	return p.grammar != 0 && n == len(p.segments)
}
