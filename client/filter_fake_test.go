package client

import (
	"testing"
	"testing/synctest"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// A gateway without the extension would deliver what is not wanted: with filters
// nobody connects to it. A break while filters are changed leaves the old ones.
func TestFiltersAndGateways(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		o.Filters = []Filter{{Kind: "ga", Subjects: []string{"a"}}}
		old := make(chan error, 1)
		go func() {
			_, err := Connect(t.Context(), o)
			old <- err
		}()
		g.greet()
		if err := <-old; CodeOf(err) != CodeInvalidFilter {
			t.Fatalf("a gateway without filters: %v", err)
		}

		c, p := g.connect(o, g.welcome)
		changed := make(chan error, 1)
		go func() { changed <- c.SetFilters(t.Context(), Filter{Kind: "ga", Subjects: []string{"b"}}) }()
		for p.next().GetConnectionStatusRequest() == nil {
		}
		g.cut()
		if err := <-changed; CodeOf(err) != CodeUnknownOutcome {
			t.Errorf("a break: %v", err)
		}
		p = g.welcome()
		if got := p.init.GetDelivery().GetFilters(); len(got) != 1 || got[0].GetSubjects()[0] != "a" {
			t.Errorf("connected anew with %v", got)
		}
		synctest.Wait()
		go func() { changed <- c.SetFilters(t.Context()) }()
		if f := p.next().GetUpdateFilters(); f == nil || len(f.GetFilters()) != 0 {
			t.Errorf("got %v", f)
		}
		p.send(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_ConnectionStatusResponse{
			ConnectionStatusResponse: &aetherv1.ConnectionStatusResponse{RequestId: p.next().GetConnectionStatusRequest().GetRequestId()},
		}})
		if err := <-changed; err != nil {
			t.Error(err)
		}
		g.close(c, p)
	})
}
