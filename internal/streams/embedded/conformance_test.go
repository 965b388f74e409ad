package embedded_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/aether-gateway/gateway/internal/sqlitefile"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/embedded"
	"github.com/aether-gateway/gateway/internal/streams/streamstest"
)

// The suite counts goroutines, so that nothing may run beside it.
func TestConformance(t *testing.T) {
	streamstest.Run(t, streamstest.Harness{
		New: func(t *testing.T, partitions int) streamstest.Log {
			return logIn(t, t.TempDir()+"/gateway.db", partitions)
		},
		KillProcess: func(t *testing.T, atLeast int) (uint64, streamstest.Log) {
			path := t.TempDir() + "/gateway.db"
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"="+path, feedEnv+"=1")
			cmd.Stderr = os.Stderr
			confirmed := streamstest.RunFeeder(t, cmd, atLeast)
			return confirmed, logIn(t, path, 2)
		},
	})
}

// logIn is a log whose drivers share one file, as those of one process do.
func logIn(t *testing.T, path string, partitions int) streamstest.Log {
	t.Helper()
	file, err := sqlitefile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
	return streamstest.Log{Open: func(t *testing.T) streams.Driver {
		d, err := embedded.Open(file, embedded.Options{Partitions: partitions})
		if err != nil {
			t.Fatal(err)
		}
		return d
	}}
}
