package router

import "testing"

func TestBoot(t *testing.T) {
	t.Parallel()
	a, b := NewBoot(), NewBoot()
	if a == 0 || a == b {
		t.Fatalf("boots %v and %v", a, b)
	}
	if text := Boot(0x01ab).String(); text != "00000000000001ab" {
		t.Errorf("it is written as %q", text)
	}
}
