package router

import (
	"fmt"
	"sync"
	"testing"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/wiring"
)

// A declared topic may be smaller than others, and may end who is too slow for
// it: the one that does not read, and nobody else.
func TestDeclaredTopicEndsSlowReaders(t *testing.T) {
	t.Parallel()
	s := wiring.Defaults()
	s.Ring, s.OnLag = 4, wiring.Disconnect
	to, err := address.AllAgents("w")
	if err != nil {
		t.Fatal(err)
	}
	w := setup(t, func(o *Options) { o.Topics = wiring.NewTable([]wiring.Topic{{Address: to, Settings: s}}) })
	var mu sync.Mutex
	var ended []string
	join := func(spec string) *session {
		name := "ag::w::i::" + spec
		p := &acl.Principal{Kind: acl.Agent, Identity: name, Workspace: "w"}
		return w.join(p, name, delivery.Options{Lagged: func(topic string) {
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, spec+" "+topic)
		}}, Reads{Shared: []string{"ga::w"}})
	}
	from := w.agent("from", client(0))
	_, quick := join("slow"), join("quick")
	for i := range 10 {
		from.send("ga::w", fmt.Sprint(i), "")
		quick.wants(fmt.Sprint(i))
	}
	w.settled()
	mu.Lock()
	defer mu.Unlock()
	if fmt.Sprint(ended) != "[slow ga::w]" {
		t.Errorf("ended: %q", ended)
	}
}
