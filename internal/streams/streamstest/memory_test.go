package streamstest_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/streamstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestMemory(t *testing.T) {
	streamstest.Run(t, streamstest.Harness{New: func(_ *testing.T, partitions int) streamstest.Log {
		m := streamstest.NewMemory(partitions)
		return streamstest.Log{
			Open: func(*testing.T) streams.Driver { return m.Driver() },
			Faults: streamstest.Faults{
				Kill: func(*testing.T) {
					m.Refuse(true)
					m.Drop()
				},
				Restart:   func(*testing.T) { m.Refuse(false) },
				Stop:      func(*testing.T) { m.Stall(true) },
				Cont:      func(*testing.T) { m.Stall(false) },
				Blackhole: func(_ *testing.T, on bool) { m.Stall(on) },
			},
		}
	}})
}
