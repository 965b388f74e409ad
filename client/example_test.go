package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/aether-gateway/gateway/client"
)

// An agent answers; a user asks.
func Example() {
	gateway, stop := startGateway()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	agent, err := client.Connect(ctx, client.Options{
		Addr:     gateway.Addr,
		Token:    gateway.AgentToken("demo", "greeter"),
		Identity: client.Agent("demo", "greeter", "1"),
		Handler: func(ctx context.Context, m *client.Message) error {
			_, err := m.Reply(ctx, fmt.Appendf(nil, "hello, %s", m.Payload))
			return err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer agent.Close(ctx)

	user, err := client.Connect(ctx, client.Options{
		Addr:     gateway.Addr,
		Token:    gateway.UserToken("ada", "demo"),
		Identity: client.User("ada", "window-1"),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer user.Close(ctx)

	answer, err := user.Request(ctx, agent.Address(), []byte("Ada"), client.WithType(client.Chat))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s from %s\n", answer.Payload, answer.Source)
	// Output: hello, Ada from ag::demo::greeter::1
}

// Messages wait for an agent that is away, and come once and in order.
func ExampleClient_Messages() {
	gateway, stop := startGateway()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	user, err := client.Connect(ctx, client.Options{
		Addr: gateway.Addr, Token: gateway.UserToken("ada", "demo"), Identity: client.User("ada", "window-1"),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer user.Close(ctx)
	for _, text := range []string{"one", "two", "three"} {
		receipt, err := user.Send(ctx, "ag::demo::reader::1", []byte(text))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("stored:", receipt.Confirmed)
	}

	agent, err := client.Connect(ctx, client.Options{
		Addr: gateway.Addr, Token: gateway.AgentToken("demo", "reader"), Identity: client.Agent("demo", "reader", "1"),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer agent.Close(ctx)
	n := 0
	for m := range agent.Messages(ctx) {
		fmt.Printf("%s: %s\n", m.Source, m.Payload)
		m.Ack() // without it the message comes again
		if n++; n == 3 {
			break
		}
	}
	// Output:
	// stored: true
	// stored: true
	// stored: true
	// us::ada::window-1: one
	// us::ada::window-1: two
	// us::ada::window-1: three
}

// Many sends are under way at once; each gets its own answer.
func ExampleClient_SendAsync() {
	gateway, stop := startGateway()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	user, err := client.Connect(ctx, client.Options{
		Addr: gateway.Addr, Token: gateway.UserToken("ada", "demo"), Identity: client.User("ada", "window-1"),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer user.Close(ctx)

	var pending []*client.Pending
	for _, to := range []string{"ag::demo::reader::1", "ag::secret::reader::1", "ag::demo::reader::2"} {
		p, err := user.SendAsync(ctx, to, []byte("hi"))
		if err != nil {
			log.Fatal(err)
		}
		pending = append(pending, p)
	}
	for _, p := range pending {
		receipt, err := p.Wait(ctx)
		switch {
		case err == nil:
			fmt.Println("stored for", receipt.To)
		case client.IsPermission(err):
			fmt.Println("not allowed, stored:", !client.NotStored(err))
		case client.SafeToRetry(err):
			fmt.Println("send it again with client.WithMessageID")
		default:
			log.Fatal(err)
		}
	}
	// Output:
	// stored for ag::demo::reader::1
	// not allowed, stored: false
	// stored for ag::demo::reader::2
}

// A sender asks who has done what: the first that answers, or all that listen.
func ExampleWithAll() {
	gateway, stop := startGateway()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agent := func(spec string) *client.Client {
		c, err := client.Connect(ctx, client.Options{
			Addr: gateway.Addr, Token: gateway.AgentToken("demo", "reader"), Identity: client.Agent("demo", "reader", spec),
			Handler: func(_ context.Context, m *client.Message) error {
				if spec == "2" && string(m.Payload) == "hard" {
					return client.Drop(errors.New("too hard for me")) // nil would be an Ack
				}
				return nil
			},
		})
		if err != nil {
			log.Fatal(err)
		}
		return c
	}
	sender, one, two := agent("sender"), agent("1"), agent("2")
	defer sender.Close(ctx)
	defer one.Close(ctx)
	defer two.Close(ctx)
	for _, text := range []string{"easy", "hard"} {
		receipt, err := sender.Send(ctx, "ga::demo", []byte(text), client.WithAll(10*time.Second))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s: %s %q\n", text, receipt.Outcome, receipt.Reason)
	}
	receipt, err := sender.Send(ctx, "ag::demo::reader::2", []byte("for you"), client.WithFirst(10*time.Second))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(receipt.Outcome)
	// Output:
	// easy: acked ""
	// hard: nacked "too hard for me"
	// acked
}
