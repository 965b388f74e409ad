package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// Keys are shared by all agents of one implementation in a workspace.
func ExampleClient_Keys() {
	gateway, stop := startGateway()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	agent, err := client.Connect(ctx, client.Options{
		Addr: gateway.Addr, Token: gateway.AgentToken("demo", "greeter"), Identity: client.Agent("demo", "greeter", "1"),
	})
	if err != nil {
		log.Fatal(err)
	}
	defer agent.Close(ctx)

	keys := agent.Keys(client.KeySpace{})
	if err := keys.Put(ctx, "greeting", []byte("hello"), 0); err != nil {
		log.Fatal(err)
	}
	// At most three greetings a minute, by all agents together.
	for range 4 {
		n, ok, err := keys.AddWithin(ctx, "greetings", 1, 3, time.Minute)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(n, ok)
	}
	for kv, err := range keys.List(ctx, "greeting") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s = %s\n", kv.Key, kv.Value)
	}
	// Output:
	// 1 true
	// 2 true
	// 3 true
	// 3 false
	// greeting = hello
	// greetings = 3
}

func TestKeysAndCheckpoints(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	ctx := t.Context()
	options := client.Options{Addr: g.Addr, Token: g.AgentToken("w", "i"), Identity: client.Agent("w", "i", "1")}
	c := connect(t, options)
	k := c.Keys(client.KeySpace{})
	fine := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fine(k.Put(ctx, "k", []byte("one"), 0))
	swapped, stored, err := k.Swap(ctx, "k", []byte("two"), []byte("three"), 0)
	if swapped || string(stored) != "one" || err != nil {
		t.Errorf("swapped %v, %q, %v", swapped, stored, err)
	}
	if swapped, _, err = k.Swap(ctx, "k", []byte("one"), []byte("two"), 0); !swapped || err != nil {
		t.Errorf("swapped %v, %v", swapped, err)
	}
	if made, err := k.PutNew(ctx, "k", []byte("x"), time.Minute); made || err != nil {
		t.Errorf("made %v, %v", made, err)
	}
	if n, err := k.Add(ctx, "n", -3, 0); n != -3 || err != nil {
		t.Errorf("counted to %d, %v", n, err)
	}
	if added, n, err := k.AddMember(ctx, "s", []byte("m"), 0); !added || n != 1 || err != nil {
		t.Errorf("added %v, %d, %v", added, n, err)
	}
	if n, err := k.CountMembers(ctx, "s"); n != 1 || err != nil {
		t.Errorf("counted %d, %v", n, err)
	}
	if deleted, _, err := k.DeleteIf(ctx, "k", []byte("two")); !deleted || err != nil {
		t.Errorf("deleted %v, %v", deleted, err)
	}
	fine(k.Delete(ctx, "s"))
	if v, err := k.Get(ctx, "k"); len(v) != 0 || err != nil {
		t.Errorf("it is still %q, %v", v, err)
	}
	var e *client.Error
	if err := k.Put(ctx, strings.Repeat("k", 513), nil, 0); !errors.As(err, &e) || e.Code != client.CodePayloadTooLarge || e.Details["limit"] != "512" {
		t.Errorf("a long key: %v", err)
	}
	own := c.Keys(client.KeySpace{Scope: client.ScopeExclusive})
	fine(own.Put(ctx, "mine", []byte("v"), 0))
	fine(c.SaveCheckpoint(ctx, "a", []byte("state"), client.DefaultTTL))
	fine(c.SaveCheckpoint(ctx, "b", nil, time.Hour))
	fine(c.Close(ctx))

	c = connect(t, options)
	if config, err := c.Config(ctx); err != nil || string(config.Workspace["n"]) != "-3" || config.Truncated {
		t.Errorf("it begins with %v, %v", config, err)
	}
	if cp, err := c.LoadCheckpoint(ctx, "a"); err != nil || string(cp.Data) != "state" || cp.SavedAt.IsZero() {
		t.Errorf("loaded %v, %v", cp, err)
	}
	if list, err := c.Checkpoints(ctx, ""); err != nil || !slices.Equal(list, []string{"a", "b"}) {
		t.Errorf("checkpoints %q, %v", list, err)
	}
	fine(c.DeleteCheckpoint(ctx, "b"))
	if _, err := c.LoadCheckpoint(ctx, ""); !errors.As(err, &e) || e.Code != client.CodeInvalidArgument {
		t.Errorf("no key: %v", err)
	}
	if n, err := c.PurgeIdentity(ctx, ""); n != 2 || err != nil {
		t.Errorf("purged %d, %v", n, err)
	}
	user := connect(t, client.Options{Addr: g.Addr, Token: g.UserToken("u", "w"), Identity: client.User("u", "1")})
	if _, err := user.Keys(client.KeySpace{}).Get(ctx, "k"); !errors.As(err, &e) || e.Code != client.CodeInvalidPrincipal || e.Retryable {
		t.Errorf("a user: %v", err)
	}
}
