package main

import (
	"testing"
	"time"
)

func TestAge(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		-time.Second: "0s", 0: "0s", 61 * time.Second: "1m1s", time.Hour: "1h0m", 47*time.Hour + 59*time.Minute + 59*time.Second: "47h59m", 49 * time.Hour: "2d1h",
	} {
		if got := age(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

// What others have written does not steer the terminal, on whatever line it is.
func TestLines(t *testing.T) {
	t.Parallel()
	if got := lines("a\x1b[31m\r\nb\u202e\tc"); got != `a\x1b[31m\r`+"\n"+`b\u202e c` {
		t.Errorf("%q", got)
	}
}
