package tables

import (
	"strings"
	"unicode/utf8"

	"github.com/aether-gateway/gateway/internal/store"
)

// checkTexts returns [store.ErrText] if one of the texts cannot be stored.
func checkTexts(texts ...string) error {
	for _, s := range texts {
		if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
			return store.ErrText
		}
	}
	return nil
}

// behind returns the lowest text that is above all that begin with prefix; ok
// is false if there is none. Texts compare by their bytes, which for UTF-8 is
// also the order of their characters.
func behind(prefix string) (text string, ok bool) {
	for prefix != "" {
		r, size := utf8.DecodeLastRuneInString(prefix)
		prefix = prefix[:len(prefix)-size]
		switch {
		case r == utf8.MaxRune:
			continue // the one before it decides
		case r+1 == 0xD800:
			r = 0xE000 // what lies between is no character
		default:
			r++
		}
		return prefix + string(r), true
	}
	return "", false
}
