package config

import (
	"testing"
	"time"
)

func TestParseDuration(t *testing.T) {
	t.Parallel()
	good := map[string]time.Duration{
		"0": 0, "0s": 0, "250ms": 250 * time.Millisecond, "7d": 7 * day, "1d12h": 36 * time.Hour, " 20s ": 20 * time.Second, "1h30m": 90 * time.Minute,
	}
	for s, want := range good {
		got, err := ParseDuration(s)
		if err != nil || got != want {
			t.Errorf("%q = %v, %v", s, got, err)
		}
		if back, err := ParseDuration(FormatDuration(got)); err != nil || back != got {
			t.Errorf("%q prints as %q", s, FormatDuration(got))
		}
	}
	for _, s := range []string{"", "20", "1.5", "d", "1d-1h", "-1d", "1dd", "1h1d", "soon", "999999999d", "106751d24h", "1e9s s"} {
		if got, err := ParseDuration(s); err == nil {
			t.Errorf("%q = %v", s, got)
		}
	}
}

func TestParseSize(t *testing.T) {
	t.Parallel()
	good := map[string]Size{
		"0": 0, "1000000": 1e6, "1MB": 1e6, "1 MiB": 1 << 20, "16mib": 16 << 20, "3B": 3, "5GB": 5e9, "1TiB": 1 << 40,
	}
	for s, want := range good {
		got, err := ParseSize(s)
		if err != nil || got != want {
			t.Errorf("%q = %d, %v", s, got, err)
		}
		if back, err := ParseSize(got.String()); err != nil || back != got {
			t.Errorf("%q prints as %q", s, got)
		}
	}
	for _, s := range []string{"", "B", "MiB", "1M", "1.5GB", "-1", "+1", "9223372036854775808", "9000000000GiB", "1_000", "0x10"} {
		if got, err := ParseSize(s); err == nil {
			t.Errorf("%q = %d", s, got)
		}
	}
}

func FuzzValues(f *testing.F) {
	for _, s := range []string{"7d", "1d12h", "20s", "16MiB", "500 MB", "9223372036854775807", "-5s", "1e3", "\x00d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if d, err := ParseDuration(s); err == nil {
			if back, err := ParseDuration(FormatDuration(d)); err != nil || back != d {
				t.Errorf("%q = %d prints as %q", s, d, FormatDuration(d))
			}
		}
		if n, err := ParseSize(s); err == nil {
			if back, err := ParseSize(n.String()); err != nil || back != n || n < 0 {
				t.Errorf("%q = %d prints as %q", s, int64(n), n)
			}
		}
	})
}
