package address

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// ValidSegment says whether s may stand as one segment of an address: the names
// of implementations, specifiers, users, windows and tasks. The error is a
// *ParseError. Workspaces need ValidWorkspace.
func ValidSegment(s string) error {
	if r := checkSegment(s); r != reasonNone {
		return newParseError(r, 1, s)
	}
	return nil
}

// ValidWorkspace says whether s may name a workspace: a valid segment that is
// not reserved. The error is a *ParseError.
func ValidWorkspace(s string) error {
	r := checkSegment(s)
	if r == reasonNone && ReservedWorkspace(s) {
		r = ReasonReservedWorkspace
	}
	if r != reasonNone {
		return newParseError(r, 1, s)
	}
	return nil
}

// ReservedWorkspace reports whether s is "receiver" followed by decimal digits.
// Such names are the gateway's own, so that metric::receiver0 cannot be taken
// for the metrics of a workspace.
func ReservedWorkspace(s string) bool {
	digits, ok := strings.CutPrefix(s, "receiver")
	if !ok || digits == "" {
		return false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return false
		}
	}
	return true
}

// asciiOK holds the ASCII characters that a segment may contain: all printable
// ones but space, '*', '#' and '>'. The colon has rules of its own.
var asciiOK = func() (ok [utf8.RuneSelf]bool) {
	for c := '!'; c <= '~'; c++ {
		ok[c] = c != '*' && c != '#' && c != '>'
	}
	return ok
}()

// checkSegment finds the first rule that s breaks. It allocates nothing.
func checkSegment(s string) Reason {
	switch {
	case s == "":
		return ReasonEmptySegment
	case len(s) > MaxSegmentBytes:
		return ReasonSegmentTooLong
	case s[0] == ':' || s[len(s)-1] == ':':
		return ReasonColonAtEdge
	}
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if !asciiOK[c] {
				return asciiReason(c)
			}
			if c == ':' && s[i-1] == ':' { // i > 0: s does not begin with ':'
				return ReasonSeparator
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return ReasonNotUTF8
		case unicode.IsSpace(r):
			return ReasonSpace
		case unicode.IsControl(r):
			return ReasonControl
		}
		i += size
	}
	return reasonNone
}

func asciiReason(c byte) Reason {
	switch c {
	case '*', '#', '>':
		return ReasonWildcard
	case ' ', '\t', '\n', '\v', '\f', '\r':
		return ReasonSpace
	}
	return ReasonControl
}
