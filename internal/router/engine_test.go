package router

import (
	"context"
	"sync"
	"testing"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/presence"
)

// An engine for all workspaces once came and went under the eyes of sessions
// that read the ring without the partition's lock, and asked who it was there.
func TestEngineComesBesideCatchUp(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	for range 200 {
		a.send("ag::w::i::b", "x", "")
	}
	w.settled()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			box := delivery.NewMailbox(delivery.Options{Mode: delivery.Client})
			sub, err := w.r.Subscribe(context.Background(), box, Reads{Events: acl.All(), Identity: "wfe::1", Lease: presence.Lease{Epoch: 1}})
			if err != nil {
				t.Error(err)
				return
			}
			sub.Leave(context.Background(), Leaving{})
		}
	})
	for range 50 {
		b := w.agent("b", client(0))
		for range 200 {
			b.message()
		}
		b.leave()
	}
	close(stop)
	wg.Wait()
}
