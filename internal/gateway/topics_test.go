package gateway_test

import (
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// An operator sees what waits for whom: counted where it is recent, else since
// when; and what is sent where.
func TestTopics(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(o *gateway.Options) { o.RingBytes, o.Placement.Partitions = 64<<10, 1 })
	op := gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops"))
	topics := func(prefix string, size int32) map[string]*adminv1.Topic {
		t.Helper()
		all := map[string]*adminv1.Topic{}
		for r := (&adminv1.ListTopicsRequest{Prefix: prefix, PageSize: size}); ; {
			page, err := op.ListTopics(within(t, patience), r)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range page.GetTopics() {
				if all[x.GetTopic()] != nil {
					t.Errorf("%s is listed twice", x.GetTopic())
				}
				all[x.GetTopic()] = x
			}
			if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
				return all
			}
		}
	}
	user := gatewaytest.MustDial(t, g.Addr, g.UserToken("u", "w"), gatewaytest.UserInit("u", "1"))
	sendAll(user, 1, 5)
	agent := gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "echo"), gatewaytest.AgentInit("w", "echo", "there"))
	user.Send(send("ag::w::echo::there", "x", "x"))
	user.Send(send("ga::w", "x", "y"))
	user.Receipt()
	user.Receipt()
	agent.Message()
	for _, size := range []int32{0, 1, 2} {
		got := topics("", size)
		for topic, want := range map[string]struct {
			waits     uint64
			connected bool
		}{echo: {5, false}, "ag::w::echo::there": {1, true}, "us::u::1": {0, true}, "ga::w": {0, false}} {
			x := got[topic]
			if x.GetBacklog() != want.waits || !x.GetBacklogExact() || x.GetConnected() != want.connected || (x.GetOldestUnreadMs() > 0) != (want.waits > 0) {
				t.Errorf("%s in pages of %d: %v", topic, size, x)
			}
			if sent := topic != "us::u::1"; (x.GetRate() > 0) != sent {
				t.Errorf("%s: rate %v", topic, x.GetRate())
			}
		}
	}
	if got := topics("ag::w::echo::t", 0); len(got) != 1 {
		t.Errorf("by a prefix: %v", got)
	}

	// Far behind, it is the age of the oldest that is told.
	for i := range 10 {
		user.Send(send("ag::w::echo::there", string(make([]byte, 50_000)), fmt.Sprint("far", i)))
		user.Receipt()
	}
	for range 10 {
		last := agent.Message()
		agent.Acknowledge(&aetherv1.DeliveryAck{UpTo: last.GetDeliveryId()})
	}
	if x := topics(echo, 0)[echo]; x.GetBacklog() == 0 || x.GetBacklogExact() || x.GetOldestUnreadMs() == 0 {
		t.Errorf("far behind: %v", x)
	}
	if _, err := op.ListTopics(within(t, patience), &adminv1.ListTopicsRequest{Prefix: "a\x00"}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a prefix that is no text: %v", err)
	}
}
