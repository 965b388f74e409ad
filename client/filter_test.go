package client_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// A desk gets the broadcasts that it has asked for, by their subjects.
func ExampleClient_SetFilters() {
	gateway, stop := startGateway()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	desk, err := client.Connect(ctx, client.Options{
		Addr: gateway.Addr, Token: gateway.AgentToken("demo", "desk"), Identity: client.Agent("demo", "desk", "1"),
		Filters: []client.Filter{{Kind: "ga", Subjects: []string{"order.*.created"}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer desk.Close(ctx)
	shop, err := client.Connect(ctx, client.Options{
		Addr: gateway.Addr, Token: gateway.AgentToken("demo", "shop"), Identity: client.Agent("demo", "shop", "1"),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer shop.Close(ctx)
	say := func(subject string) {
		if _, err := shop.Send(ctx, "ga::demo", nil, client.WithSubject(subject)); err != nil {
			log.Fatal(err)
		}
	}
	get := func() {
		m, err := desk.Receive(ctx)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(m.Subject)
	}
	say("order.v1.paid")
	say("order.v1.created")
	get()
	if err := desk.SetFilters(ctx, client.Filter{Kind: "ga", Subjects: []string{"bill.#"}}); err != nil {
		log.Fatal(err)
	}
	say("order.v1.created")
	say("bill.v1.paid.late")
	get()
	fmt.Println(client.CodeOf(desk.SetFilters(ctx, client.Filter{Kind: "ga", Subjects: []string{"bill*"}})))
	// Output:
	// order.v1.created
	// bill.v1.paid.late
	// ERR_INVALID_FILTER
}

// A session after a break has the filters that were accepted last.
func TestFilters(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	first := gatewaytest.Start(t)
	second := gatewaytest.Start(t)
	bad := client.Options{Addr: first.Addr, Token: first.AgentToken("w", "i"), Identity: client.Agent("w", "i", "bad"), Filters: []client.Filter{{Kind: "ag"}}}
	if _, err := client.Connect(ctx, bad); client.CodeOf(err) != client.CodeInvalidFilter {
		t.Fatalf("got %v", err)
	}
	notices := make(chan client.Notice, 100)
	desk := connect(t, client.Options{
		Addr: first.Addr, Others: []string{second.Addr}, Token: first.AgentToken("w", "i"), Identity: client.Agent("w", "i", "1"),
		Filters: []client.Filter{{Kind: "ga", Subjects: []string{"a"}}}, OnNotice: func(n client.Notice) { notices <- n },
	})
	if err := desk.SetFilters(ctx, client.Filter{Kind: "ga", Subjects: []string{"b"}}); err != nil {
		t.Fatal(err)
	}
	for want, f := range map[client.Code]client.Filter{
		client.CodeInvalidFilter:    {Kind: "ga", Subjects: []string{"#.a"}},
		client.CodePermissionDenied: {Kind: "tb"},
	} {
		if err := desk.SetFilters(ctx, client.Filter{Kind: "ga"}, f); client.CodeOf(err) != want {
			t.Errorf("%v: %v", f, err)
		}
	}
	if err := desk.SetFilters(ctx, client.Filter{Kind: "\xff"}); client.CodeOf(err) != client.CodeInvalidFilter {
		t.Errorf("no text: %v", err)
	}
	first.Stop()
	for connected := 0; connected < 2; {
		select {
		case n := <-notices:
			switch n := n.(type) {
			case client.Connected:
				connected++
			case client.Refused:
				t.Errorf("told twice: %v", n)
			}
		case <-ctx.Done():
			t.Fatal("the client does not come back")
		}
	}
	from := connect(t, client.Options{Addr: second.Addr, Token: second.AgentToken("w", "i"), Identity: client.Agent("w", "i", "2")})
	for _, subject := range []string{"a", "", "b"} {
		if _, err := from.Send(ctx, "ga::w", []byte(subject), client.WithSubject(subject)); err != nil {
			t.Fatal(err)
		}
	}
	if m := receive(t, desk); m.Subject != "b" {
		t.Errorf("got %q", m.Subject)
	}
}
