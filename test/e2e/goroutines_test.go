package e2e

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// goroutines are a gateway's goroutines by their stacks.
type goroutines map[string]int

var (
	countedStack = regexp.MustCompile(`^(\d+) @`)
	stackFrame   = regexp.MustCompile(`^#\t0x[0-9a-f]+\t(\S+?)\+0x[0-9a-f]+\s+\S*?([^/\s]+:\d+)$`)
)

// goroutines asks the operators' port, which [withOps] has opened.
func (g *gateway) goroutines(tb testing.TB) goroutines {
	tb.Helper()
	return parseGoroutines(g.opsGet(tb, "/debug/goroutines"))
}

// parseGoroutines reads a profile in the form that counts equal stacks. A stack
// is written with the function that began the goroutine first.
func parseGoroutines(profile string) goroutines {
	all := goroutines{}
	for record := range strings.SplitSeq(profile, "\n\n") {
		count, frames := 0, []string(nil)
		for line := range strings.Lines(record) {
			line = strings.TrimRight(line, "\n")
			if m := countedStack.FindStringSubmatch(line); m != nil {
				_, _ = fmt.Sscan(m[1], &count)
			}
			if m := stackFrame.FindStringSubmatch(line); m != nil {
				frames = append(frames, m[1]+" "+m[2])
			}
		}
		if count > 0 {
			slices.Reverse(frames)
			all[strings.Join(frames, "\n")] += count
		}
	}
	return all
}

// lasting counts those that do not come and go: all but the pumps of sessions,
// of which a session has one from something that it sends, and be it a
// heartbeat, to the next lull. More than one is too many.
func (g goroutines) lasting() (n int) {
	sessions, pumps := 0, 0
	for stack, count := range g {
		n += count
		switch {
		case strings.Contains(stack, "internal/session.(*Session).receive "):
			sessions += count
		case strings.Contains(stack, "internal/session.(*Session).pump "):
			pumps += count
		}
	}
	return n - min(sessions, pumps)
}

// began is the function in which a goroutine began, or what it was begun for.
func began(stack string) string {
	for line := range strings.Lines(stack) {
		function, _, _ := strings.Cut(line, " ")
		if function != "sync.(*WaitGroup).Go.func1" && !strings.HasSuffix(function, ".(*Router).spawn.func1") &&
			!strings.HasSuffix(function, ".(*Session).guard") && !strings.HasSuffix(function, ".(*Session).attend.func1") {
			return function
		}
	}
	return stack
}

// sites counts by where they began.
func (g goroutines) sites() map[string]int {
	sites := map[string]int{}
	for stack, n := range g {
		sites[began(stack)] += n
	}
	return sites
}

// since says where there are more goroutines than there were, and what those
// of such a place are doing.
func (g goroutines) since(was goroutines) string {
	var b strings.Builder
	before, now := was.sites(), g.sites()
	var sites []string
	for site, n := range now {
		if n > before[site] {
			sites = append(sites, site)
		}
	}
	slices.Sort(sites)
	for _, site := range sites {
		fmt.Fprintf(&b, "%s: %d, before %d\n", site, now[site], before[site])
		for stack, n := range g {
			if began(stack) == site {
				fmt.Fprintf(&b, "\t%d (before %d) in\n\t\t%s\n", n, was[stack], strings.ReplaceAll(stack, "\n", "\n\t\t"))
			}
		}
	}
	return b.String()
}

func TestGoroutinesSince(t *testing.T) {
	t.Parallel()
	const profile = "goroutine profile: total 5\n" +
		"3 @ 0x47 0x48\n" +
		"#\t0x47\texample.com/a%2ego/b.(*C).wait+0x2f\t\t/src/a/b/c.go:12\n" +
		"#\t0x48\texample.com/b.Begin.func1+0xd0\t/src/a/b/begin.go:7\n\n" +
		"2 @ 0x51\n#\t0x51\tmain.main+0x1\tmain.go:3\n"
	got := parseGoroutines(profile)
	if got.lasting() != 5 {
		t.Errorf("%d goroutines in %v", got.lasting(), got)
	}
	const receive, pump = "x/internal/session.(*Session).receive session.go:1", "x/internal/session.(*Session).pump session.go:2"
	if n := (goroutines{receive: 3, pump: 2}).lasting(); n != 3 {
		t.Errorf("three sessions, two of which send, count as %d", n)
	}
	if n := (goroutines{receive: 3, pump: 5}).lasting(); n != 5 {
		t.Errorf("three sessions and two pumps too many count as %d", n)
	}
	was := goroutines{"main.main main.go:3": 2, "example.com/b.Begin.func1 begin.go:9": 1}
	want := "example.com/b.Begin.func1: 3, before 1\n\t3 (before 0) in\n" +
		"\t\texample.com/b.Begin.func1 begin.go:7\n\t\texample.com/a%2ego/b.(*C).wait c.go:12\n"
	if said := got.since(was); said != want {
		t.Errorf("got %q", said)
	}
}
