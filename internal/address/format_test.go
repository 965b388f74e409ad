package address_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/address"
)

// What an error shows as right is right.
func TestFormat(t *testing.T) {
	t.Parallel()
	placeholder := regexp.MustCompile(`\{\w+\}`)
	for _, p := range address.Prefixes() {
		a, err := address.Parse(placeholder.ReplaceAllString(p.Format(), "x"))
		if err != nil || a.Prefix() != p {
			t.Errorf("%s: %v", p.Format(), err)
		}
		if _, err := address.Parse(p.String() + "::x::x::x::x"); err == nil || !strings.Contains(err.Error(), p.Format()) {
			t.Errorf("%s: the error does not show how it is written: %v", p, err)
		}
	}
	if _, err := address.Parse("agent::w::i::s"); err == nil || !strings.Contains(err.Error(), "ag, tu, ta") {
		t.Errorf("the error does not show the prefixes: %v", err)
	}
}
