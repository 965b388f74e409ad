package address

import (
	"strings"
	"unicode/utf8"
)

const (
	// MaxRunes is the most code points that an address may have.
	MaxRunes = 256
	// MaxSegmentBytes is the most bytes that one segment may have.
	MaxSegmentBytes = 128

	separator      = "::"
	metricAnyText  = "metric::*"
	metricSinkName = "receiver0"
	metricSinkText = "metric::" + metricSinkName
)

// Address is one parsed address. It is an immutable value: comparable with ==
// (byte for byte), usable as a map key, safe for concurrent use. The zero value
// is no address; every other value was made by Parse or one of the builders and
// is valid.
//
// An Address holds on to the string it was parsed from and copies nothing.
type Address struct {
	text   string
	prefix Prefix
	// Where the first and the second segment end in text; segments that the
	// prefix does not have leave 0. They follow from text, so == stays exact.
	end1, end2 uint16
}

// Parse reads an address. It allocates nothing on success. The error is always
// a *ParseError, at every length and for any bytes.
func Parse(s string) (Address, error) {
	a, reason, at := parse(s)
	if reason != reasonNone {
		return Address{}, newParseError(reason, at, s)
	}
	return a, nil
}

// parse is Parse without the error value. at is the number of the offending
// segment, counted from 1 after the prefix, or 0 for the address as a whole.
func parse(s string) (a Address, reason Reason, at int) {
	if s == "" {
		return Address{}, ReasonEmpty, 0
	}
	// Past this many bytes it cannot be valid; counting runes would only cost.
	if len(s) > MaxRunes && (len(s) > MaxRunes*utf8.UTFMax || utf8.RuneCountInString(s) > MaxRunes) {
		return Address{}, ReasonTooLong, 0
	}
	cut := strings.Index(s, separator)
	if cut < 0 {
		return Address{}, ReasonNoSeparator, 0
	}
	p := parsePrefix(s[:cut])
	if p == 0 {
		return Address{}, ReasonUnknownPrefix, 0
	}
	if s == metricAnyText {
		return Address{text: s, prefix: p, end1: uint16(len(s))}, reasonNone, 0
	}
	sh := &shapes[p]
	a = Address{text: s, prefix: p}
	start := cut + len(separator)
	for i := range sh.segments {
		end := len(s)
		next := strings.Index(s[start:], separator)
		last := i == sh.segments-1
		switch {
		case last && next >= 0:
			return Address{}, ReasonTooManySegments, 0
		case !last && next < 0:
			return Address{}, ReasonTooFewSegments, 0
		case !last:
			end = start + next
		}
		seg := s[start:end]
		if reason = checkSegment(seg); reason != reasonNone {
			return Address{}, reason, i + 1
		}
		if i == sh.workspace && ReservedWorkspace(seg) && (p != PrefixMetric || seg != metricSinkName) {
			return Address{}, ReasonReservedWorkspace, i + 1
		}
		switch i {
		case 0:
			a.end1 = uint16(end)
		case 1:
			a.end2 = uint16(end)
		}
		start = end + len(separator)
	}
	return a, reasonNone, 0
}

// String is the address as it was parsed, "" for the zero value.
// Parse(a.String()) == a for every valid a.
func (a Address) String() string { return a.text }

// Prefix is the kind of the address, 0 for the zero value.
func (a Address) Prefix() Prefix { return a.prefix }

// IsZero reports whether a is the zero value, which is no address.
func (a Address) IsZero() bool { return a.prefix == 0 }

// Mode says how messages to a reach its subscribers.
func (a Address) Mode() Mode { return a.prefix.Mode() }

// Segments is the number of segments after the prefix, 1 to 3, and 0 for the
// zero value.
func (a Address) Segments() int { return a.prefix.shape().segments }

// Segment is the i-th segment after the prefix, counted from 0, and "" where
// the address has no such segment.
func (a Address) Segment(i int) string {
	sh := a.prefix.shape()
	if i < 0 || i >= sh.segments {
		return ""
	}
	start, end := len(sh.name)+len(separator), len(a.text)
	switch i {
	case 0:
		end = int(a.end1)
	case 1:
		start, end = int(a.end1)+len(separator), int(a.end2)
	case 2:
		start = int(a.end2) + len(separator)
	}
	return a.text[start:end]
}

// Workspace is the workspace that the address names. It is "" for us, sv and
// br, which name none, and for metric::* and metric::receiver0.
func (a Address) Workspace() string {
	w := a.prefix.shape().workspace
	if w == noWorkspace || a.IsMetricAny() || a.IsMetricReceiver() {
		return ""
	}
	return a.Segment(w)
}

// Implementation is the implementation that ag, tu, ta, tb, sv and br name, ""
// for the others.
func (a Address) Implementation() string {
	switch a.prefix {
	case PrefixAgent, PrefixUniqueTask, PrefixTask, PrefixTaskBroadcast:
		return a.Segment(1)
	case PrefixService, PrefixBridge:
		return a.Segment(0)
	}
	return ""
}

// Specifier is the specifier of ag, tu, sv and br and the task id of ta, "" for
// the others.
func (a Address) Specifier() string {
	switch a.prefix {
	case PrefixAgent, PrefixUniqueTask, PrefixTask:
		return a.Segment(2)
	case PrefixService, PrefixBridge:
		return a.Segment(1)
	}
	return ""
}

// UserID is the user that us and uw name, "" for the others.
func (a Address) UserID() string {
	if a.prefix == PrefixUser || a.prefix == PrefixUserWorkspace {
		return a.Segment(0)
	}
	return ""
}

// Window is the window that us names, "" for the others.
func (a Address) Window() string {
	if a.prefix == PrefixUser {
		return a.Segment(1)
	}
	return ""
}

// IsMetricAny reports whether a is metric::*, the form in which senders address
// the metrics of their own workspace.
func (a Address) IsMetricAny() bool { return a.text == metricAnyText }

// IsMetricReceiver reports whether a is metric::receiver0, the form in which
// metrics are stored.
func (a Address) IsMetricReceiver() bool { return a.text == metricSinkText }
