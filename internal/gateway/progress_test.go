package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

func report(peer *gatewaytest.Peer, r *aetherv1.ProgressReport) {
	peer.Up(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Progress{Progress: r}})
}

// update returns the next update of progress.
func update(peer *gatewaytest.Peer) *aetherv1.ProgressUpdate {
	return peer.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetProgressUpdate() != nil }).GetProgressUpdate()
}

// Progress reaches who listens on every gateway, but its reporter; what has a
// recipient only that one. A client that knows nothing of the extension gets it
// and reports it.
func Test14ProgressOverTwoGateways(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	worker := gatewaytest.MustDial(t, c.a.Addr, c.token, &aetherv1.InitConnection{
		Identity: &aetherv1.InitConnection_Agent{Agent: &aetherv1.AgentIdentity{Workspace: "w", Implementation: "echo", Specifier: "1"}},
	})
	other := gatewaytest.MustDial(t, c.a.Addr, c.token, gatewaytest.AgentInit("w", "echo", "2"))
	window := func(g *gatewaytest.Gateway, user, name string) *gatewaytest.Peer {
		init := gatewaytest.UserInit(user, name)
		init.Workspace = "w"
		return gatewaytest.MustDial(t, g.Addr, g.UserToken(user, "w"), init)
	}
	here, there, stranger := window(c.a, "u", "1"), window(c.b, "u", "2"), window(c.b, "v", "1")
	tail, err := gatewaytest.Operator(t, c.b.Addr, c.b.OperatorToken("ops")).Tail(within(t, patience), &adminv1.TailRequest{Address: "pg::w"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tail.Recv(); err != nil {
		t.Fatal(err)
	}
	report(worker, &aetherv1.ProgressReport{Summary: "window", Recipient: "us::u::2"})
	report(worker, &aetherv1.ProgressReport{Summary: "user", Recipient: "us::u"})
	report(worker, &aetherv1.ProgressReport{Summary: "all", Completion: 0.5, RequestId: "r"})
	for _, want := range []string{"user", "all"} {
		if u := update(here); u.GetSummary() != want {
			t.Fatalf("got %v, want %q", u, want)
		}
	}
	report(other, &aetherv1.ProgressReport{Summary: "end"})
	for _, w := range []struct {
		peer *gatewaytest.Peer
		want []string
	}{
		{worker, []string{"end"}},
		{other, []string{"all"}},
		{here, []string{"end"}},
		{there, []string{"window", "user", "all", "end"}},
		{stranger, []string{"all", "end"}},
	} {
		for _, want := range w.want {
			u := update(w.peer)
			if u.GetSummary() != want {
				t.Fatalf("got %v, want %q", u, want)
			}
			if want == "all" && (u.GetSource() != echo || u.GetWorkspace() != "w" || u.GetRequestId() != "r" || u.GetCompletion() != 0.5) {
				t.Errorf("got %v", u)
			}
		}
	}
	for name, r := range map[string]*aetherv1.ProgressReport{
		"ERR_INVALID_ARGUMENT":  {Completion: 1.5, RequestId: "r1"},
		"ERR_PERMISSION_DENIED": {Recipient: "ag::v::echo::1", RequestId: "r2"},
		"ERR_NOT_FOUND":         {TaskId: "t", RequestId: "r3"},
	} {
		report(worker, r)
		if e := worker.Error(); e.GetCode() != name || e.GetRequestId() != r.GetRequestId() {
			t.Errorf("%v: got %v", r, e)
		}
	}
	for _, want := range []string{"window", "user", "all", "end"} {
		r, err := tail.Recv()
		if m := r.GetMessage(); err != nil || m.GetProgress().GetSummary() != want || m.GetMessageType() != "progress" || m.GetTopic() != "pg::w" {
			t.Errorf("the operator saw %v, %v, want %q", r, err, want)
		}
	}
	report(here, &aetherv1.ProgressReport{RequestId: "u"})
	if e := here.Error(); e.GetCode() != "ERR_PERMISSION_DENIED" || e.GetRequestId() != "u" {
		t.Errorf("a user's report: %v", e)
	}
}

// owners says who works on which task, and counts what it is asked.
type owners struct {
	mu    sync.Mutex
	of    map[string]string
	away  bool
	hold  chan struct{} // nil: answers at once
	asked int
	beats map[string]int
}

func (o *owners) Owned(ctx context.Context, task, identity string) (string, bool, error) {
	o.mu.Lock()
	hold := o.hold
	o.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return "", false, ctx.Err()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked++
	if o.away {
		return "", false, errors.New("away")
	}
	return "w", o.of[task] == identity, nil
}

func (o *owners) Beat(task, _ string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.beats == nil {
		o.beats = map[string]int{}
	}
	o.beats[task]++
}

// Reports on a task are its worker's; those on others' tasks look as if there
// were none. Reports keep their order, also while whose the task is has yet to
// be said, and sends do not wait for that.
func Test14ReportsOnTasks(t *testing.T) {
	t.Parallel()
	o := &owners{of: map[string]string{"mine": "ag::w::echo::1", "theirs": "ag::w::echo::2"}}
	clock := &gatewaytest.Clock{}
	g := gatewaytest.Start(t, gatewaytest.WithClock(clock), func(g *gateway.Options) { g.Workers = o })
	token := g.AgentToken("w", "echo")
	worker := gatewaytest.MustDial(t, g.Addr, token, gatewaytest.AgentInit("w", "echo", "1"))
	watcher := gatewaytest.MustDial(t, g.Addr, token, gatewaytest.AgentInit("w", "echo", "2"))
	for _, task := range []string{"theirs", "none"} {
		report(worker, &aetherv1.ProgressReport{TaskId: task, RequestId: task})
		if e := worker.Error(); e.GetCode() != "ERR_NOT_FOUND" || e.GetRequestId() != task {
			t.Errorf("%s: %v", task, e)
		}
	}
	hold := make(chan struct{})
	o.mu.Lock()
	o.hold = hold
	o.mu.Unlock()
	for i := range 20 {
		r := &aetherv1.ProgressReport{Summary: fmt.Sprint(i)}
		if i%3 == 0 {
			r.TaskId = "mine"
		}
		report(worker, r)
	}
	worker.Send(send("ag::w::echo::2", "x", "sent"))
	if r := worker.Receipt(); r.GetRequestId() != "sent" {
		t.Errorf("got %v", r)
	}
	close(hold)
	next := 0
	see := func(upTo int) {
		t.Helper()
		for ; next < upTo; next++ {
			if u := update(watcher); u.GetSummary() != fmt.Sprint(next) {
				t.Fatalf("got %q, want %d", u.GetSummary(), next)
			}
		}
	}
	see(20)
	o.mu.Lock()
	before, beats := o.asked, o.beats["mine"]
	o.mu.Unlock()
	if beats != 7 {
		t.Errorf("%d beats", beats)
	}
	// What is known is not asked again at once, and is after a while.
	for range 100 {
		report(worker, &aetherv1.ProgressReport{Summary: fmt.Sprint(next), TaskId: "mine"})
		see(next + 1)
	}
	o.mu.Lock()
	if n := o.asked - before; n > 50 {
		t.Errorf("asked %d times for 100 reports", n)
	}
	o.of["mine"], o.away = "ag::w::echo::2", true
	o.mu.Unlock()
	clock.Forward(2 * time.Second)
	report(worker, &aetherv1.ProgressReport{TaskId: "mine", RequestId: "away"})
	if e := worker.Error(); e.GetCode() != "ERR_UNAVAILABLE" || !e.GetRetryable() {
		t.Errorf("got %v", e)
	}
	o.mu.Lock()
	o.away = false
	o.mu.Unlock()
	report(worker, &aetherv1.ProgressReport{TaskId: "mine", RequestId: "lost"})
	if e := worker.Error(); e.GetCode() != "ERR_NOT_FOUND" {
		t.Errorf("got %v", e)
	}
}
