package router

import "testing"

func TestBoot(t *testing.T) {
	t.Parallel()
	a, b := NewBoot(), NewBoot()
	if a == 0 || a == b {
		t.Fatalf("boots %v and %v", a, b)
	}
	if got, ok := ParseBoot(a.String()); !ok || got != a {
		t.Errorf("%v was read as %v, %t", a, got, ok)
	}
	for _, bad := range []string{"", "0", "0000000000000000", "01234567890abcdeF", "ABCDEF0123456789", "zz34567890abcdef"} {
		if got, ok := ParseBoot(bad); ok {
			t.Errorf("%q was read as %v", bad, got)
		}
	}
}
