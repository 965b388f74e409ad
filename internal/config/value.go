package config

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"
)

// day is what time.ParseDuration lacks.
const day = 24 * time.Hour

// ParseDuration reads a duration such as 250ms, 20s, 1h30m or 7d. A number
// without a unit is refused, except 0.
func ParseDuration(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	if s == "" {
		return 0, errors.New("is empty; write a duration such as 20s")
	}
	rest, days := s, time.Duration(0)
	if n, after, ok := strings.Cut(s, "d"); ok {
		v, err := strconv.ParseUint(n, 10, 32)
		if err != nil || time.Duration(v) > math.MaxInt64/day {
			return 0, errNotDuration(s)
		}
		if days, rest = time.Duration(v)*day, after; rest == "" {
			return days, nil
		}
		if rest[0] < '0' || rest[0] > '9' {
			return 0, errNotDuration(s)
		}
	}
	d, err := time.ParseDuration(rest)
	if err != nil || d > 0 && days > math.MaxInt64-d {
		if _, err := strconv.ParseFloat(s, 64); err == nil {
			return 0, fmt.Errorf("%q has no unit; write %ss for seconds, or ms, m, h, d", s, s)
		}
		return 0, errNotDuration(s)
	}
	return days + d, nil
}

func errNotDuration(s string) error {
	return fmt.Errorf("%q is no duration; write one such as 250ms, 20s, 5m, 1h30m or 7d", s)
}

// FormatDuration is the shortest form that [ParseDuration] reads back.
func FormatDuration(d time.Duration) string {
	if d == 0 {
		return "0s"
	}
	if d > 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// sizeUnits is ordered so that a suffix of another comes after it.
var sizeUnits = []struct {
	name  string
	bytes uint64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
}

// ParseSize reads a number of bytes: 1048576, 1MiB, 500 MB. K, M and G alone
// are refused, since people disagree on what they are.
func ParseSize(s string) (Size, error) {
	text := strings.TrimSpace(s)
	number, unit := text, uint64(1)
	for _, u := range sizeUnits {
		if len(text) > len(u.name) && strings.EqualFold(text[len(text)-len(u.name):], u.name) {
			number, unit = strings.TrimSpace(text[:len(text)-len(u.name)]), u.bytes
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%q is no size; write bytes, or a whole number with B, KB, MB, GB, TB (1000) or KiB, MiB, GiB, TiB (1024)", s)
	}
	hi, lo := bits.Mul64(n, unit)
	if hi != 0 || lo > math.MaxInt64 {
		return 0, fmt.Errorf("%q is too large", s)
	}
	return Size(lo), nil
}

// String is the shortest form that [ParseSize] reads back.
func (s Size) String() string {
	if s > 0 {
		for _, u := range []int{3, 2, 1, 0} {
			if b := Size(sizeUnits[u].bytes); s%b == 0 {
				return strconv.FormatInt(int64(s/b), 10) + sizeUnits[u].name
			}
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "true", "1":
		return true, nil
	case "false", "0":
		return false, nil
	}
	return false, fmt.Errorf("%q is neither true nor false", s)
}

func parseInt(s string) (int64, error) {
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is no whole number", s)
	}
	return n, nil
}
