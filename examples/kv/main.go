// Command kv is an agent that keeps a counter which all agents of its
// implementation share, and its own progress, which it finds again when it is
// started anew.
//
//	AETHER_TOKEN=$(bin/gateway token create --kind agent --workspace demo --impl counter --spec 1) go run ./examples/kv
package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/aether-gateway/gateway/client"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	addr := os.Getenv("AETHER_ADDR")
	if addr == "" {
		addr = "127.0.0.1:50051"
	}
	c, err := client.Connect(ctx, client.Options{
		Addr: addr, Token: os.Getenv("AETHER_TOKEN"), Identity: client.Agent("demo", "counter", "1"),
	})
	if err != nil {
		return err
	}
	defer c.Close(ctx) //nolint:errcheck // the program ends

	// What the implementation has in this workspace came with the connection.
	config, err := c.Config(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("shared by all: %s visits\n", orNone(config.Workspace["visits"]))

	// No visit is counted twice or lost, however many agents count.
	visits, err := c.Keys(client.KeySpace{}).Add(ctx, "visits", 1, 0)
	if err != nil {
		return err
	}
	fmt.Printf("counted: %d visits\n", visits)

	// What only this agent needs to know next time.
	last, err := c.LoadCheckpoint(ctx, "last")
	if err != nil {
		return err
	}
	if len(last.Data) == 8 {
		fmt.Printf("when I was here last there were %d\n", binary.BigEndian.Uint64(last.Data))
	}
	return c.SaveCheckpoint(ctx, "last", binary.BigEndian.AppendUint64(nil, uint64(visits)), client.DefaultTTL)
}

func orNone(value []byte) string {
	if value == nil {
		return "no"
	}
	return string(value)
}
