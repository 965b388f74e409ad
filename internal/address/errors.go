package address

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// Code is the short name of every refusal of this package, as test data and
// machine-readable output spell it.
const Code = "invalid_topic"

// Reason is the rule that a refused address breaks.
type Reason uint8

// The reasons. When several rules are broken, the first one found from left to
// right is reported.
const (
	reasonNone Reason = iota
	ReasonEmpty
	ReasonTooLong
	ReasonNoSeparator
	ReasonUnknownPrefix
	ReasonTooFewSegments
	ReasonTooManySegments
	ReasonEmptySegment
	ReasonSegmentTooLong
	ReasonColonAtEdge
	ReasonSeparator
	ReasonSpace
	ReasonControl
	ReasonWildcard
	ReasonNotUTF8
	ReasonReservedWorkspace

	reasonEnd
)

var reasonTexts = [reasonEnd]string{
	ReasonEmpty:             "it is empty",
	ReasonTooLong:           "it has more than 256 characters",
	ReasonNoSeparator:       "it has no '::' after the prefix",
	ReasonUnknownPrefix:     "its prefix is not known",
	ReasonTooFewSegments:    "it has too few segments for its prefix",
	ReasonTooManySegments:   "it has too many segments for its prefix",
	ReasonEmptySegment:      "a segment is empty",
	ReasonSegmentTooLong:    "a segment has more than 128 bytes",
	ReasonColonAtEdge:       "a segment begins or ends with ':'",
	ReasonSeparator:         "a segment contains '::'",
	ReasonSpace:             "a segment contains white space",
	ReasonControl:           "a segment contains a control character",
	ReasonWildcard:          "a segment contains '*', '#' or '>'",
	ReasonNotUTF8:           "a segment is not valid UTF-8",
	ReasonReservedWorkspace: "workspace names of the form 'receiver' and digits are reserved",
}

// String is a sentence fragment that says what is wrong.
func (r Reason) String() string {
	if r < reasonEnd && r != reasonNone {
		return reasonTexts[r]
	}
	return "it is not valid"
}

// maxEcho bounds how many bytes of a refused input an error repeats.
const maxEcho = 64

// ParseError says why an address or a segment was refused. Its text is bounded
// whatever the input, and safe to log: it repeats at most 64 bytes of the
// input, quoted.
type ParseError struct {
	Reason Reason
	// Segment is the number of the offending segment, counted from 1 after the
	// prefix; 0 means the address as a whole.
	Segment int

	excerpt string // quoted
	wanted  string // how it would be right, "" if that is no help
}

func newParseError(r Reason, segment int, input string) *ParseError {
	e := &ParseError{Reason: r, Segment: segment, excerpt: excerpt(input)}
	switch r {
	case ReasonTooFewSegments, ReasonTooManySegments:
		name, _, _ := strings.Cut(input, separator)
		e.wanted = parsePrefix(name).Format()
	case ReasonUnknownPrefix, ReasonNoSeparator, ReasonEmpty:
		e.wanted = knownPrefixes
	}
	return e
}

// knownPrefixes is what an address may begin with.
var knownPrefixes = func() string {
	var names []string
	for _, p := range Prefixes() {
		names = append(names, p.String())
	}
	return "one that begins with " + strings.Join(names, ", ")
}()

// Error implements error.
func (e *ParseError) Error() string {
	text := "invalid address " + e.excerpt + ": " + e.Reason.String()
	if e.Segment > 0 {
		text += " (segment " + strconv.Itoa(e.Segment) + ")"
	}
	if e.wanted != "" {
		text += "; wanted is " + e.wanted
	}
	return text
}

// Code is "invalid_topic" for every ParseError.
func (e *ParseError) Code() string { return Code }

// excerpt quotes the beginning of s. It never cuts a character in two and keeps
// no reference to s.
func excerpt(s string) string {
	if len(s) <= maxEcho {
		return strconv.Quote(s)
	}
	cut := maxEcho
	for cut > maxEcho-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return strconv.Quote(s[:cut]) + "…"
}
