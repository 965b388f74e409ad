package rabbitmq

import (
	"fmt"
	"testing"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/streamstest"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// Not parallel: the suite looks for goroutines that are left behind.
func TestConformance(t *testing.T) {
	b := testservices.NewBroker(t)
	streamstest.Run(t, streamstest.Harness{
		New: func(t *testing.T, partitions int) streamstest.Log {
			proxy := faultproxy.New(t, fmt.Sprintf("127.0.0.1:%d", b.StreamPort()))
			o := Options{
				URLs:    []string{fmt.Sprintf("rabbitmq-stream://guest:guest@%s/", proxy.Addr())},
				Streams: newStreams(partitions),
			}
			return streamstest.Log{
				Open: func(t *testing.T) streams.Driver { return openDriver(t, o) },
				Faults: streamstest.Faults{
					Kill:      func(*testing.T) { b.Kill() },
					Restart:   func(*testing.T) { b.Start() },
					Stop:      func(*testing.T) { b.Stop() },
					Cont:      func(*testing.T) { b.Cont() },
					Blackhole: func(_ *testing.T, on bool) { proxy.Blackhole(on) },
				},
			}
		},
	})
}
