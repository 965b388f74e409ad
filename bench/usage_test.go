package main

import (
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	t.Parallel()
	stat := "42 (a name (with) 7 8 9) S 1 42 42 0 -1 4194304 500 0 0 0 250 150 0 0 20 0 9 0 100 0 0"
	if got, err := parseStat([]byte(stat)); err != nil || got != 4*time.Second {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "1 (x) S 1", "1 (x) S 1 42 42 0 -1 4194304 500 0 0 0 a b 0"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if _, err := cpuTime(os.Getpid()); err != nil {
		t.Error(err)
	}
}
