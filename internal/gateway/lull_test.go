package gateway_test

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// pumps counts the goroutines of the process that send for a session.
func pumps() int {
	stacks := make([]byte, 8<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	return bytes.Count(stacks, []byte("session.(*Session).pump("))
}

func noPumps(t *testing.T, when string) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); pumps() > 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%s: %d goroutines send", when, pumps())
		}
	}
}

// An idle session took three goroutines, a third of its memory: the one that
// sends is there only while something is sent now and then. Not parallel: it
// counts the goroutines of the process.
func TestIdleSessionsDoNotSend(t *testing.T) {
	p := newPair(t)
	var agents []*gatewaytest.Peer
	for i := range 5 {
		agents = append(agents, gatewaytest.MustDial(t, p.g.Addr, p.token, gatewaytest.AgentInit("w", "echo", fmt.Sprint(i))))
	}
	noPumps(t, "idle")
	for i, agent := range agents {
		for n := range 3 {
			p.user.Send(send(fmt.Sprintf("ag::w::echo::%d", i), fmt.Sprint(n), "r"))
			p.user.Receipt()
		}
		for n := range 3 {
			if got := string(agent.Message().GetPayload()); got != fmt.Sprint(n) {
				t.Errorf("got %q, want %d", got, n)
			}
		}
	}
	noPumps(t, "after messages")
	for _, agent := range agents {
		if err := agent.Leave(); err != io.EOF {
			t.Errorf("leave: %v", err)
		}
	}
}
