package orchestrator

import (
	"errors"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/store"
)

// TestRow20OrchestratorKilledAtEachStep: whenever an orchestrator dies, there is
// one start, one worker, and no attempt is spent that was not begun. The deadline
// is an hour: nothing here waits for it.
func TestRow20OrchestratorKilledAtEachStep(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (*world, *Service, *Service) {
		t.Helper()
		w := newWorld(t)
		a, b := w.gateway("a", nil), w.gateway("b", nil)
		w.register(a, "echo")
		return w, a, b
	}
	// second is the orchestrator that has the start after the first one has died.
	second := func(t *testing.T, w *world, s *Service, first *aetherv1.TaskAssignment, attempt int32) {
		t.Helper()
		next := w.orchestrator(s, "2", "process").next()
		if first != nil && next.GetTaskId() != first.GetTaskId() {
			t.Errorf("another task: %s, %s", first.GetTaskId(), next.GetTaskId())
		}
		w.state(echo, store.TaskAssigned, attempt)
		if _, _, err := w.connect(s, next, "of the second"); err != nil {
			t.Fatal(err)
		}
		w.state(echo, store.TaskRunning, attempt)
		if n := len(w.starts(echo)); n != 1 {
			t.Errorf("%d starts", n)
		}
	}
	refused := func(t *testing.T, w *world, s *Service, a *aetherv1.TaskAssignment) {
		t.Helper()
		if _, _, err := w.connect(s, a, "of the first"); !errors.Is(err, auth.ErrTaskToken) {
			t.Errorf("a worker with the dead attempt's token: %v", err)
		}
	}

	t.Run("before it claims", func(t *testing.T) {
		t.Parallel()
		w, a, b := begin(t)
		w.orchestrator(a, "1", "process").gone(false)
		a.Waits(echo, "us::u::1", "w")
		w.state(echo, store.TaskQueued, 1)
		second(t, w, b, nil, 1)
	})
	t.Run("after the claim is stored, before it has it", func(t *testing.T) {
		t.Parallel()
		w, a, b := begin(t)
		dead := make(chan struct{})
		var first *orc
		first = w.orchestratorThat(a, "1", func(*aetherv1.TaskAssignment) bool {
			w.hold(first.id, false)
			first.leave(false)
			close(dead)
			return false
		})
		a.Waits(echo, "us::u::1", "w")
		<-dead
		w.state(echo, store.TaskQueued, 1)
		second(t, w, b, nil, 1)
	})
	t.Run("after the claim, before the process starts", func(t *testing.T) {
		t.Parallel()
		w, a, b := begin(t)
		first := w.orchestrator(a, "1", "process")
		a.Waits(echo, "us::u::1", "w")
		got := first.next()
		first.gone(false)
		second(t, w, b, got, 2)
		refused(t, w, b, got)
	})
	t.Run("after the process has started, before that connects", func(t *testing.T) {
		t.Parallel()
		w, a, b := begin(t)
		first := w.orchestrator(a, "1", "process")
		a.Waits(echo, "us::u::1", "w")
		got := first.next()
		first.gone(false)
		w.state(echo, store.TaskQueued, 2)
		refused(t, w, b, got) // its process lives, and comes too late
		second(t, w, b, got, 2)
	})
	t.Run("after the worker has come", func(t *testing.T) {
		t.Parallel()
		w, a, b := begin(t)
		first := w.orchestrator(a, "1", "process")
		a.Waits(echo, "us::u::1", "w")
		got := first.next()
		if _, _, err := w.connect(b, got, "of the first"); err != nil {
			t.Fatal(err)
		}
		first.gone(false)
		w.orchestrator(b, "2", "process").nothing(resumeWait + 300*time.Millisecond)
		w.state(echo, store.TaskRunning, 1)
	})
	t.Run("before it says that it cannot start it", func(t *testing.T) {
		t.Parallel()
		w, a, b := begin(t)
		first := w.orchestrator(a, "1", "process")
		a.Waits(echo, "us::u::1", "w")
		got := first.next()
		first.gone(true) // the process has ended, and the orchestrator with it
		second(t, w, b, got, 2)
	})
}
