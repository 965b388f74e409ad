package presencetest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

func directory(t *testing.T, w World, a, b *Member) {
	sees := func(g *Member, name, session string) {
		t.Helper()
		Eventually(t, fmt.Sprintf("%s is held by %q", name, session), func() bool {
			held, certain := g.Held(name)
			e, ok := g.Lookup(name)
			id, held2 := g.Holder(name)
			if ok != held || held2 != held || id != e.SessionID {
				return false // between two questions something has changed
			}
			return certain && held == (session != "") && e.SessionID == session
		})
	}
	w.Advance(time.Second)
	sees(b, "agent::x", "")
	one := Take(t, a, named("one", "agent::x", "event::*")).Lease
	for _, g := range []*Member{a, b} {
		sees(g, "agent::x", "one")
		sees(g, "event::ws", "one")
		sees(g, "event::*", "one")
		sees(g, "agent::y", "")
		if e, _ := g.Lookup("agent::x"); e.Instance != a.Self().ID || e.Epoch != one.Epoch {
			t.Errorf("got %+v, want %s, %d", e, a.Self().ID, one.Epoch)
		}
	}
	two := Take(t, b, resuming("one", "two", "agent::x")).Lease
	for _, g := range []*Member{a, b} {
		sees(g, "agent::x", "two")
		sees(g, "event::ws", "")
	}
	release(t, b, two)
	for _, g := range []*Member{a, b} {
		sees(g, "agent::x", "")
	}
	for _, g := range []*Member{a, b} {
		list, certain := g.Instances()
		if !certain || !slices.ContainsFunc(list, func(i presence.Instance) bool { return i == g.Self() }) {
			t.Errorf("instances: %+v, %v, without %+v", list, certain, g.Self())
		}
	}
}

func notices(t *testing.T, _ World, a, b *Member) {
	const n = 500
	got := make(chan presence.Notice, 4*n)
	stop := b.Listen("test", func(n presence.Notice) { got <- n })
	defer stop()
	send := func(to, payload string) {
		t.Helper()
		Eventually(t, "the notice is taken", func() bool {
			err := a.Send(to, "test", []byte(payload))
			if err != nil && !errors.Is(err, presence.ErrOverflow) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	// Nobody says when the other side listens; the first to arrive does.
	Eventually(t, "a notice comes", func() bool {
		send(b.Self().ID, "hello")
		return len(got) > 0
	})
	send(b.Self().ID, "begin")
	for i := range n {
		send(b.Self().ID, fmt.Sprint(i))
	}
	begun := false
	for i := 0; i < n; {
		select {
		case notice := <-got:
			switch text := string(notice.Payload); {
			case !begun:
				begun = text == "begin"
			case text != fmt.Sprint(i) || notice.From != a.Self().ID || notice.Kind != "test":
				t.Fatalf("got %q from %s, want %d", text, notice.From, i)
			default:
				i++
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("notice %d is missing", i)
		}
	}
	if a.Gateway != b.Gateway {
		own := make(chan presence.Notice, 1)
		defer a.Listen("all", func(n presence.Notice) { own <- n })()
		all := make(chan presence.Notice, 1)
		defer b.Listen("all", func(n presence.Notice) { all <- n })()
		if err := a.Send("", "all", []byte("to all others")); err != nil {
			t.Fatal(err)
		}
		if n := <-all; string(n.Payload) != "to all others" || n.From != a.Self().ID {
			t.Errorf("got %+v", n)
		}
		if len(own) > 0 {
			t.Error("the sender gets its own notice")
		}
	}
	for _, bad := range []struct {
		kind string
		size int
	}{{"", 1}, {"presence.yield", 1}, {strings.Repeat("k", presence.MaxKind+1), 1}, {"test", presence.MaxNotice + 1}} {
		if err := a.Send("", bad.kind, make([]byte, bad.size)); !errors.Is(err, presence.ErrInvalid) {
			t.Errorf("%.20q with %d bytes: %v", bad.kind, bad.size, err)
		}
	}
	if err := a.Send("nobody", "test", nil); err != nil {
		t.Errorf("to nobody: %v", err)
	}
}
