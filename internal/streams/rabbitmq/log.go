package rabbitmq

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/logs"
)

// libraryLog is where the client library's own messages go. The library has one
// logger for the whole process, so the driver opened last decides.
var libraryLog atomic.Pointer[slog.Logger]

func init() {
	// Before any goroutine of the library runs: its logger is not guarded.
	logs.SetLogger(bridge{})
}

// bridge hands the library's messages to slog, all of them for debugging: what
// it calls an error is often an answer that the driver handles, it warns of
// heartbeats that are merely late, and what matters the driver logs itself.
type bridge struct{}

func (bridge) Error(message string, v ...any) { say(message, v) }
func (bridge) Warn(message string, v ...any)  { say(message, v) }
func (bridge) Info(message string, v ...any)  { say(message, v) }

// Debug drops its message, as some are sent per confirm, but for one: it is all
// that tells of the library's endless loop around a node that answers under
// another name than it was dialled by.
func (bridge) Debug(message string, v ...any) {
	if len(v) >= 3 && strings.HasPrefix(message, "connectionProperties host ") {
		mismatched(fmt.Sprintf("the node there calls itself %v, but the stream is at %v:%v", v[0], v[1], v[2]))
	}
}

func say(message string, v []any) {
	l := libraryLog.Load()
	if l == nil || !l.Enabled(context.Background(), slog.LevelDebug) {
		return
	}
	text := strings.TrimSpace(fmt.Sprintf(strings.ReplaceAll(message, "%w", "%v"), v...))
	l.Debug("stream client: " + text)
}
