package auth

import (
	"fmt"
	"strings"

	"github.com/aether-gateway/gateway/internal/address"
)

// matchSpec reports whether a specifier fits the pattern of a `spec` claim. In a
// pattern `*` stands for any run of characters, also an empty one; every other
// character stands for itself. It takes at most len(pattern) × len(spec) steps,
// both of which are at most 128 bytes.
func matchSpec(pattern, spec string) bool {
	p, s := 0, 0
	star, resume := -1, 0 // the last '*', and where in spec to go on after it
	for s < len(spec) {
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, resume = p, s
			p++
		case p < len(pattern) && pattern[p] == spec[s]:
			p++
			s++
		case star >= 0:
			resume++
			p, s = star+1, resume
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// checkPattern says whether a pattern could fit any specifier at all: it is one
// itself once its stars stand for a letter.
func checkPattern(pattern string) error {
	if len(pattern) > address.MaxSegmentBytes {
		return fmt.Errorf("more than %d bytes", address.MaxSegmentBytes)
	}
	return address.ValidSegment(strings.ReplaceAll(pattern, "*", "x"))
}
