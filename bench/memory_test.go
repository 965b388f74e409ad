package main

import (
	"os"
	"testing"
)

const status = "Name:\ta name\nVmHWM:\t    9000 kB\nVmRSS:\t    8000 kB\nRssAnon:\t    5000 kB\nRssFile:\t    3000 kB\n"

func TestParseStatus(t *testing.T) {
	t.Parallel()
	if got, err := parseStatus([]byte(status)); err != nil || got != 5000<<10 {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "VmRSS:\t8 kB\n", "RssAnon:\n", "RssAnon:\t5 MB\n", "RssAnon:\t-5 kB\n", "RssAnon:\t99999999999999999999 kB\n"} {
		if _, err := parseStatus([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if got, err := memoryOf(os.Getpid()); err != nil || got < 1<<20 {
		t.Errorf("this process has %d bytes, %v", got, err)
	}
	if _, err := memoryOf(-1); err == nil {
		t.Error("a process that there is not has memory")
	}
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte(status))
	f.Add([]byte("RssAnon: x kB"))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = parseStatus(b) })
}

func TestSettling(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		values []uint64 // the last goes on
		looks  int
	}{
		{"at rest", []uint64{1000}, settleSame},
		{"grows, then rests", []uint64{1000, 1500, 2000}, 2 + settleSame},
		{"a little to and fro", []uint64{1000, 1004, 999, 1003, 1000}, settleSame},
		{"creeps", []uint64{1000, 1004, 1006, 1006}, 2 + settleSame}, // 6 away from where it began
	} {
		var s settling
		looks := 1
		for !s.see(c.values[min(looks, len(c.values))-1]) {
			looks++
		}
		if looks != c.looks {
			t.Errorf("%s: %d looks, want %d", c.name, looks, c.looks)
		}
	}
	var s settling
	looks := uint64(1)
	for !s.see(looks * 1000) {
		looks++
	}
	if looks != settleMost {
		t.Errorf("it looks %d times at what never rests", looks)
	}
}

func TestPerSession(t *testing.T) {
	t.Parallel()
	if perSession(1000, 5000, 4) != 1000 || perSession(5000, 1000, 4) != 0 || perSession(1, 2, 0) != 0 {
		t.Error("perSession is wrong")
	}
}
