package address

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// reference is the slow and obvious reading of the grammar, against which the
// parser is checked.
func reference(s string) bool {
	if s == "metric::*" {
		return true
	}
	if !utf8.ValidString(s) {
		return false
	}
	if n := len([]rune(s)); n < 1 || n > 256 {
		return false
	}
	want := map[string]int{
		"ag": 3, "tu": 3, "ta": 3, "tb": 2, "us": 2, "uw": 2, "ga": 1, "gu": 1, "pg": 1, "event": 1, "metric": 1, "sv": 2, "br": 2,
	}
	parts := strings.Split(s, "::")
	if n, ok := want[parts[0]]; !ok || len(parts)-1 != n {
		return false
	}
	for _, seg := range parts[1:] {
		if !referenceSegment(seg) {
			return false
		}
	}
	workspace := map[string]int{"ag": 1, "tu": 1, "ta": 1, "tb": 1, "uw": 2, "ga": 1, "gu": 1, "pg": 1, "event": 1, "metric": 1}
	if i, ok := workspace[parts[0]]; ok && s != "metric::receiver0" {
		if digits, found := strings.CutPrefix(parts[i], "receiver"); found && digits != "" && strings.Trim(digits, "0123456789") == "" {
			return false
		}
	}
	return true
}

func referenceSegment(seg string) bool {
	return seg != "" && len(seg) <= 128 && utf8.ValidString(seg) &&
		!strings.ContainsAny(seg, "*#>") && !strings.Contains(seg, "::") &&
		!strings.HasPrefix(seg, ":") && !strings.HasSuffix(seg, ":") &&
		!strings.ContainsFunc(seg, func(r rune) bool { return unicode.IsSpace(r) || unicode.Is(unicode.Cc, r) })
}
