package orchestrator

import (
	"errors"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/task"
)

// errOver says that a task has gone on without whoever asks: it has ended, is at
// another attempt, or is somebody else's now.
var errOver = errors.New("orchestrator: the task has gone on")

// goneOn reports whether a change was not made because there is nothing to
// change any more.
func goneOn(err error) bool {
	return errors.Is(err, errOver) || errors.Is(err, store.ErrNotFound) || errors.Is(err, task.ErrImpossible)
}
