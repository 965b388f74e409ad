// Command echo is the shortest agent: it answers with what it gets.
//
//	AETHER_TOKEN=$(bin/gateway token create --kind agent --workspace demo --impl echo --spec 1) go run ./examples/echo
//	bin/gateway send --as us::alice::cli --to ag::demo::echo::1 --text 'Are you there?' --wait
package main

import (
	"context"
	"log"
	"os"

	"github.com/aether-gateway/gateway/client"
)

func main() {
	c, err := client.Connect(context.Background(), client.Options{
		Addr: "127.0.0.1:50051", Token: os.Getenv("AETHER_TOKEN"), Identity: client.Agent("demo", "echo", "1"),
		Handler: func(ctx context.Context, m *client.Message) error {
			_, err := m.Reply(ctx, m.Payload)
			return err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("connected as %s", c.Address())
	<-c.Done()
	log.Fatal(c.Err())
}
