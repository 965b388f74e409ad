package address

import (
	"errors"
	"strings"
	"testing"
)

func TestBuilders(t *testing.T) {
	t.Parallel()
	made := func(a Address, err error) string {
		if err != nil {
			return err.Error()
		}
		return a.String()
	}
	cases := map[string]string{
		"ag::w::i::s": made(Agent("w", "i", "s")),
		"tu::w::i::s": made(UniqueTask("w", "i", "s")),
		"ta::w::i::7": made(Task("w", "i", "7")),
		"tb::w::i":    made(TaskBroadcast("w", "i")),
		"us::u::win":  made(User("u", "win")),
		"uw::u::w":    made(UserWorkspace("u", "w")),
		"ga::w":       made(AllAgents("w")),
		"gu::w":       made(AllUsers("w")),
		"pg::w":       made(Progress("w")),
		"event::w":    made(Event("w")),
		"metric::w":   made(Metric("w")),
		"sv::i::s":    made(Service("i", "s")),
		"br::i::s":    made(Bridge("i", "s")),
	}
	for want, got := range cases {
		if got != want {
			t.Errorf("built %s, want %s", got, want)
		}
	}
}

func TestBuildersRefuse(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name    string
		err     error
		reason  Reason
		segment int
	}{
		{"empty part", second(Agent("w", "", "s")), ReasonEmptySegment, 2},
		{"separator in a part", second(Agent("a::b", "c", "d")), ReasonSeparator, 1},
		{"separator with a missing part", second(Service("a::b", "")), ReasonSeparator, 1},
		{"colon at the edge", second(Service("a:", "b")), ReasonColonAtEdge, 1},
		{"wildcard", second(Metric("*")), ReasonWildcard, 1},
		{"reserved", second(Metric("receiver0")), ReasonReservedWorkspace, 1},
		{"reserved user workspace", second(UserWorkspace("u", "receiver7")), ReasonReservedWorkspace, 2},
		{"too long together", second(Agent(strings.Repeat("a", 128), strings.Repeat("b", 128), "c")), ReasonTooLong, 0},
		{"257 characters", second(Agent(strings.Repeat("ü", 64), strings.Repeat("b", 124), strings.Repeat("c", 61))), ReasonTooLong, 0},
	}
	for _, c := range cases {
		pe, ok := errors.AsType[*ParseError](c.err)
		if !ok || pe.Reason != c.reason || pe.Segment != c.segment {
			t.Errorf("%s: %v", c.name, c.err)
		}
	}
}

func TestBuilderTakesTheLongest(t *testing.T) {
	t.Parallel()
	a, err := Agent(strings.Repeat("ü", 64), strings.Repeat("b", 124), strings.Repeat("c", 60))
	if err != nil || len([]rune(a.String())) != MaxRunes {
		t.Errorf("%v, %v", a, err)
	}
}

func second(_ Address, err error) error { return err }

func TestValidNames(t *testing.T) {
	t.Parallel()
	if err := ValidSegment("receiver0"); err != nil {
		t.Errorf("receiver0 is a fine segment: %v", err)
	}
	if err := ValidWorkspace("receiver0"); err == nil {
		t.Error("receiver0 is taken for a workspace")
	}
	for _, bad := range []string{"", "a::b", ":a", "a:", "a b", "*", "\xff", strings.Repeat("x", 129)} {
		if ValidSegment(bad) == nil || ValidWorkspace(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}
