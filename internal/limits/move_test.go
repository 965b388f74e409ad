package limits

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// A session that changes its workspace counts in the new one and no more in the
// old one, on all gateways; one that is refused, or gives up, counts as before.
func Test16Sessions(t *testing.T) {
	t.Parallel()
	w := setup(t, 2, Options{Workspace: Rate{Messages: 10}, WorkspaceSessions: 2})
	var open []*Account
	for i := range 2 {
		open = append(open, w.open(i, Party{Identity: fmt.Sprint("v", i), Workspace: "v"}))
	}
	a := w.open(0, Party{Identity: "us::u::1", Workspace: "w"})
	open = append(open, a)
	var crowd *SessionsError
	if _, err := a.Move(t.Context(), "v"); !errors.As(err, &crowd) || crowd.Scope != Workspace || crowd.Limit != 2 {
		t.Fatalf("there is no room: %v", err)
	}
	moving, err := a.Move(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	moving.Cancel()
	open[0].Close()
	w.advance(200 * time.Millisecond)
	if moving, err = a.Move(t.Context(), "v"); err != nil {
		t.Fatal(err)
	}
	moving.Commit()
	w.advance(200 * time.Millisecond)
	for in, room := range map[string]bool{"v": false, "w": true} {
		b, err := w.gateways[1].Open(t.Context(), Party{Identity: "x", Workspace: in})
		if (err == nil) != room {
			t.Errorf("a session more in %s: %v", in, err)
		}
		b.Close()
	}
	for v := range 100 {
		if !a.Take("v", 1).Refused {
			continue
		}
		if v < 5 {
			t.Errorf("refused after %d", v)
		}
		break
	}
	if !a.Take("v", 1).Refused {
		t.Error("the new workspace's rate does not count")
	}
	if a.Take("w", 1).Refused {
		t.Error("what was used in the new workspace counts in the old one")
	}
	for _, a := range open {
		a.Close()
	}
	w.advance(5 * time.Second)
	for i, l := range w.gateways {
		if n := l.Len(); n != 0 {
			t.Errorf("gateway %d keeps %d buckets", i, n)
		}
	}
}

// A session may end while it changes.
func TestMoveAndClose(t *testing.T) {
	t.Parallel()
	w := setup(t, 1, Options{WorkspaceSessions: 1})
	a := w.open(0, Party{Identity: "i", Workspace: "w"})
	moving, err := a.Move(t.Context(), "v")
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
	moving.Commit()
	if _, err := a.Move(t.Context(), "v"); !errors.Is(err, ErrClosed) {
		t.Errorf("an account that is closed: %v", err)
	}
	w.advance(2 * time.Second)
	if n := w.gateways[0].Len(); n != 0 {
		t.Errorf("%d buckets are kept", n)
	}
	var none *Account
	if moving, err = none.Move(t.Context(), "v"); err != nil {
		t.Error(err)
	}
	moving.Commit()
	moving.Cancel()
}
