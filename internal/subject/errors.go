package subject

import "fmt"

// Code says which rule of its grammar a pattern breaks.
type Code string

// The codes.
const (
	Empty        Code = "empty"
	EmptySegment Code = "empty_segment"
	TooLong      Code = "too_long"
	TooDeep      Code = "too_deep"
	StarNotAlone Code = "star_not_alone"
	HashNotAlone Code = "hash_not_alone"
	HashNotFinal Code = "hash_not_final"
	// ColonAtEdge is for patterns over addresses only: ":::" could be read in
	// two ways.
	ColonAtEdge    Code = "colon_at_edge"
	UnknownGrammar Code = "unknown_grammar"
)

var codeTexts = map[Code]string{
	Empty:          "is empty",
	EmptySegment:   "has an empty segment",
	TooLong:        "is too long",
	TooDeep:        "has more than 20 segments",
	StarNotAlone:   "has a * that is not a whole segment",
	HashNotAlone:   "has a # that is not a whole segment",
	HashNotFinal:   "has a # that is not the last segment",
	ColonAtEdge:    "has a segment that begins or ends with a colon",
	UnknownGrammar: "is of no known grammar",
}

// Error says why a pattern is refused: the first rule that it breaks, from left
// to right.
type Error struct {
	Code Code
	// Segment is the number of the offending segment, counted from 1; 0 if it
	// is the pattern as a whole.
	Segment int
}

func (e *Error) Error() string {
	if e.Segment > 0 {
		return fmt.Sprintf("the pattern %s (segment %d)", codeTexts[e.Code], e.Segment)
	}
	return "the pattern " + codeTexts[e.Code]
}
