package chaos

import (
	"bufio"
	"encoding/json"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/test/chaos/check"
)

// recorder collects what clients and the harness note, in one order.
type recorder struct {
	start     time.Time
	receivers []check.Receiver

	mu     sync.Mutex
	events []check.Event
}

func newRecorder() *recorder { return &recorder{start: time.Now()} }

func (r *recorder) note(e check.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.At = time.Since(r.start)
	r.events = append(r.events, e)
}

// history returns what was noted so far.
func (r *recorder) history() check.History {
	r.mu.Lock()
	defer r.mu.Unlock()
	return check.History{
		Receivers: r.receivers, Events: slices.Clone(r.events),
		Race: 100 * time.Millisecond, Memory: 30 * time.Second,
		Fence: 8 * time.Second,  // delivery rule L3 says 5 s; the machine may be busy
		Reach: 30 * time.Second, // twice the time after which all must be whole again
	}
}

// save writes a history to a file, one event a line as people read it, and to
// another one for programs.
func save(h check.History, text, data string) error {
	f, err := os.Create(text)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	for _, e := range h.Events {
		w.WriteString(e.String()) //nolint:errcheck // Flush tells
		w.WriteByte('\n')         //nolint:errcheck // Flush tells
	}
	if err := w.Flush(); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	b, err := json.Marshal(h)
	if err != nil {
		return err
	}
	return os.WriteFile(data, b, 0o600)
}
