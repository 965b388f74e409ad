// Command lazy is an agent that somebody starts when mail waits for it: it
// answers, and stops when it has had nothing to do for a while. To close cleanly
// completes the task that it was started for. What it has not acknowledged then
// starts it again; after three starts within ten minutes that waits for up to ten
// minutes, or for the next message, so that an agent of your own should stay longer.
//
//	see the README, "Agents that are started when they are needed"
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/aether-gateway/gateway/client"
)

const idleAfter = 5 * time.Second

func main() {
	busy := make(chan struct{}, 1)
	c, err := client.Connect(context.Background(), client.Options{
		Addr:      cmp.Or(os.Getenv("AETHER_ADDR"), "127.0.0.1:50051"),
		TaskToken: os.Getenv("AETHER_TASK_TOKEN"),
		Identity:  client.Agent(os.Getenv("AETHER_WORKSPACE"), os.Getenv("AETHER_IMPLEMENTATION"), os.Getenv("AETHER_SPECIFIER")),
		Handler: func(ctx context.Context, m *client.Message) error {
			select {
			case busy <- struct{}{}:
			default:
			}
			_, err := m.Reply(ctx, fmt.Appendf(nil, "I was asleep. You said: %s", m.Payload))
			return err
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	config, err := c.Config(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	log.Printf("%s is awake, for task %s", c.Address(), config.Task["task_id"])
	idle := time.NewTimer(idleAfter)
	for {
		select {
		case <-busy:
			idle.Reset(idleAfter)
		case <-idle.C:
			log.Printf("%s has nothing to do and stops", c.Address())
			if err := c.Close(context.Background()); err != nil {
				log.Fatal(err)
			}
			return
		case <-c.Done():
			log.Fatal(c.Err())
		}
	}
}
