package presence

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Wildcard returns the prefix for which name stands, if it ends in "::*".
func Wildcard(name string) (prefix string, ok bool) {
	if strings.HasSuffix(name, "::*") {
		return name[:len(name)-1], true
	}
	return "", false
}

// Prefixes calls yield with each beginning of name that ends in "::" and so
// may be the prefix of a wildcard, until yield returns false.
func Prefixes(name string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := 2; i <= len(name); i++ {
			if name[i-2:i] == "::" && !yield(name[:i]) {
				return
			}
		}
	}
}

// Check returns [ErrInvalid] if the claim cannot be used.
func (c Claim) Check() error {
	switch {
	case c.SessionID == "" || len(c.SessionID) > MaxSessionID || !plain(c.SessionID):
		return fmt.Errorf("%w: session id", ErrInvalid)
	case len(c.Names) == 0 || len(c.Names) > MaxNames:
		return fmt.Errorf("%w: %d names, 1 to %d can be leased together", ErrInvalid, len(c.Names), MaxNames)
	}
	for _, name := range c.Names {
		if name == "" || len(name) > MaxName || !plain(name) {
			return fmt.Errorf("%w: name %.64q", ErrInvalid, name)
		}
	}
	return nil
}

// plain refuses what is not UTF-8 and what would need escaping in a log.
func plain(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
