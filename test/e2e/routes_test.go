package e2e

import "testing"

// withRoutes declares what testRoutes needs.
const withRoutes = `AETHER_ROUTES=[{name: orders, from: 'ag::routed::shop::main', to: 'ag::routed::billing::main', principal: 'sv::router::main'}]`

// testRoutes has the gateway killed that forwards, right after messages are
// stored. All are forwarded, once, in order (runtime 7.1).
func testRoutes(t *testing.T, a, b *gateway) {
	t.Helper()
	const ws, from = "routed", "ag::routed::shop::main"
	forwards := func(g *gateway) bool { return g.metric(t, `aether_forwards_total{outcome="stored"}`) > 0 }
	first := connect(t, b, agent(ws, "i", "first"))
	first.stored(from, "m 0")
	first.leaves()
	if !eventually(patience, func() bool { return forwards(a) || forwards(b) }) {
		t.Fatal("nothing is forwarded")
	}
	dying, staying := a, b
	if forwards(b) {
		dying, staying = b, a
	}
	sender, receiver := connect(t, staying, agent(ws, "i", "s")), connect(t, staying, agent(ws, "billing", "main"), client(5000))
	sender.stored(from, numbered("m", 1, 300)...)
	dying.kill()
	sender.stored(from, numbered("m", 301, 400)...)
	sender.stored(from, "last")
	got := receiver.until("last")
	wantTexts(t, got, numbered("m", 0, 400))
	if m := got[0]; m.GetSourceTopic() != "sv::router::main" || m.GetMetadata()["aether-source"] != "ag::routed::i::first" || m.GetMetadata()["aether-hops"] != "1" {
		t.Errorf("got %v", m)
	}
	dying.restart()
}
