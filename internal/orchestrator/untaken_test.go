package orchestrator

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// TestUntaken: a start that no orchestrator takes says why it waits, once; it
// spends no attempt, and the first orchestrator that can start it has it.
func TestUntaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ahead atomic.Int64
	s := w.gateway("a", func(o *Options) {
		o.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
	})
	w.register(s, "echo")
	w.orchestrator(s, "of another profile", "other")
	s.Waits(echo, "us::u::1", "w")
	queued := w.state(echo, store.TaskQueued, 1)
	if queued.Reason != "" {
		t.Errorf("it waits because of %q before it has waited", queued.Reason)
	}
	ahead.Store(int64(untakenAfter + time.Second))
	s.noteUntaken()
	waits := w.state(echo, store.TaskQueued, 1)
	if !strings.Contains(waits.Reason, "profile process") {
		t.Errorf("it waits because of %q", waits.Reason)
	}
	s.noteUntaken()
	if again := w.state(echo, store.TaskQueued, 1); again.Rev != waits.Rev {
		t.Error("it is said once more")
	}
	if _, err := s.o.Registry.Remove(context.Background(), "echo", ""); err != nil {
		t.Fatal(err)
	}
	w.register(s, "other") // while nothing is registered, nothing is looked at
	eventually(t, func() bool { _, ok := s.o.Registry.Find("echo", "w"); return !ok }, "removed")
	s.noteUntaken()
	if x := w.state(echo, store.TaskQueued, 1); !strings.Contains(x.Reason, "not registered") {
		t.Errorf("it waits because of %q", x.Reason)
	}
	w.register(s, "echo")
	if a := w.orchestrator(s, "1", "process").next(); a.GetTaskId() != queued.ID {
		t.Errorf("handed %s, want %s", a.GetTaskId(), queued.ID)
	}
	if x := w.state(echo, store.TaskAssigned, 1); x.Reason != "" {
		t.Errorf("it is assigned, and its reason is %q", x.Reason)
	}
}
