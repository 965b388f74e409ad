package redis

import (
	"slices"
	"strings"
	"testing"
)

func FuzzFields(f *testing.F) {
	for _, s := range []string{"", "0:", "5:hello", "5:hello0:3:a:b", "5:hell", "05:hello", ":", "-1:", "999999999999:x", "4294967296:x", "1:\x00", "5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		list, err := fields(s, -1)
		if err != nil {
			return
		}
		var b []byte
		for _, field := range list {
			b = appendField(b, field)
		}
		if string(b) != s {
			t.Fatalf("%q became %q", s, b)
		}
		if _, err := fields(s, len(list)+1); err == nil {
			t.Fatal("a missing field is accepted")
		}
		if len(list) > 0 {
			if _, err := fields(s, len(list)-1); err == nil {
				t.Fatal("one too many is accepted")
			}
		}
	})
}

func FuzzChanges(f *testing.F) {
	row := func(list ...string) string {
		var b []byte
		for _, s := range list {
			b = appendField(b, s)
		}
		return string(b)
	}
	for _, s := range []string{
		"", row("inc", "7", "agent::x", "s", "b", "1800000000000"), row("inc", "7", "agent::x", "", "b", "0", "y", "s", "b", "1"),
		row("inc", "7"), row("inc", "x", "n", "s", "b", "1"), row("inc", "7", "n", "s", "b", "-1"), row("inc", "7", "n", "s", "b"),
		row("inc", "7", "", "s", "b", "1"), row("inc", "18446744073709551616", "n", "s", "b", "1"),
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		_, _, changes, err := parseChanges(s)
		if err == nil && (len(changes) == 0 || slices.ContainsFunc(changes, func(c change) bool { return c.name == "" })) {
			t.Fatalf("accepted %q as %+v", s, changes)
		}
	})
}

func FuzzFrame(f *testing.F) {
	f.Add(string(frame("from", "kind", []byte("payload"))))
	f.Add(string(frame("", "", nil)))
	f.Add("4:from")
	f.Add("4:from9:kind")
	f.Fuzz(func(t *testing.T, s string) {
		from, kind, payload, err := parseFrame(s)
		if err == nil && string(frame(from, kind, payload)) != s {
			t.Fatalf("%q became %q", s, frame(from, kind, payload))
		}
	})
}

func TestCutFieldBounds(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 100_000)
	field, rest, err := cutField(string(appendField(nil, long)) + "rest")
	if err != nil || field != long || rest != "rest" {
		t.Fatalf("%d bytes, rest %q, %v", len(field), rest, err)
	}
	for _, bad := range []string{"9999999999:", "00:", "01:x", "1", "x:", "1x:y"} {
		if _, _, err := cutField(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
