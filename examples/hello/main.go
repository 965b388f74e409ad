// Command hello is an agent that answers whoever writes to it.
//
//	AETHER_TOKEN=$(bin/gateway token create --kind agent --workspace demo --impl hello --spec 1) go run ./examples/hello
//	bin/gateway send --as us::alice::cli --to ag::demo::hello::1 --text world --wait
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/aether-gateway/gateway/client"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := client.Connect(ctx, client.Options{
		Addr:     cmp.Or(os.Getenv("AETHER_ADDR"), "127.0.0.1:50051"),
		Token:    os.Getenv("AETHER_TOKEN"),
		Identity: client.Agent("demo", "hello", "1"),
		Handler: func(ctx context.Context, m *client.Message) error {
			_, err := m.Reply(ctx, fmt.Appendf(nil, "hello, %s", m.Payload))
			return err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("connected as %s", c.Address())
	select {
	case <-ctx.Done():
	case <-c.Done(): // for good: the token has expired, say
		log.Fatal(c.Err())
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := c.Close(ctx); err != nil { // it waits for handlers
		log.Print(err)
	}
}
