// Command worker is one of a pool of workers that count words, and tells how far
// it is. With -ask it is the agent that has words counted, and follows the work.
//
// In one terminal, or in several:
//
//	AETHER_TOKEN=$(bin/gateway token create --kind task --workspace demo --impl counter) go run ./examples/worker
//
// In another one:
//
//	AETHER_TOKEN=$(bin/gateway token create --kind agent --workspace demo --impl boss --spec 1) \
//	  go run ./examples/worker -ask 'how many words are these'
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"time"

	"github.com/aether-gateway/gateway/client"
)

func main() {
	text := flag.String("ask", "", "the text whose words are to be counted; without it this is a worker")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	run := work
	if *text != "" {
		run = func(ctx context.Context, o client.Options) error { return ask(ctx, o, *text) }
	}
	addr := os.Getenv("AETHER_ADDR")
	if addr == "" {
		addr = "127.0.0.1:50051"
	}
	if err := run(ctx, client.Options{Addr: addr, Token: os.Getenv("AETHER_TOKEN")}); err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

// handed is how many tasks a worker of a pool may be handed at a time.
const handed = 16

// work does the tasks that come, one after the other, until it is interrupted.
func work(ctx context.Context, o client.Options) error {
	tasks := make(chan client.TaskAssigned, handed)
	o.Identity = client.Task("demo", "counter")
	o.OnNotice = func(n client.Notice) {
		if t, ok := n.(client.TaskAssigned); ok {
			tasks <- t
		}
	}
	c, err := client.Connect(ctx, o)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the program ends
	log.Printf("connected as %s", c.Address())
	for {
		select {
		case t := <-tasks:
			if err := count(ctx, c, t); err != nil {
				log.Printf("task %s: %v", t.ID, err)
			}
		case <-c.Done():
			return c.Err()
		case <-ctx.Done():
			return nil
		}
	}
}

// pace is how long a word takes.
const pace = 300 * time.Millisecond

// count does one task. If this program ends before that, the gateway waits a
// while for it to come back, and then the task has failed or another worker gets
// it, as its attempts say.
func count(ctx context.Context, c *client.Client, t client.TaskAssigned) error {
	if _, err := c.ClaimTask(ctx, t.ID); err != nil {
		return err // somebody else's by now
	}
	words := bytes.Fields(t.Payload)
	if len(words) == 0 {
		_, err := c.FailTask(ctx, t.ID, "there are no words")
		return err
	}
	for i, word := range words {
		select {
		case <-time.After(pace):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := c.Report(ctx, client.Progress{
			TaskID: t.ID, State: "counting", Completion: float64(i+1) / float64(len(words)), Summary: fmt.Sprintf("%d: %s", i+1, word),
			Metadata: map[string]string{"words": strconv.Itoa(i + 1)},
		}); err != nil {
			return err
		}
	}
	_, err := c.CompleteTask(ctx, t.ID)
	return err
}

// ask has the words of a text counted by whichever worker is free, now or when
// one comes.
func ask(ctx context.Context, o client.Options, text string) error {
	progress := make(chan client.Progress, 64)
	o.Identity = client.Agent("demo", "boss", "1")
	o.OnNotice = func(n client.Notice) {
		if p, ok := n.(client.Progressed); ok {
			progress <- p.Progress
		}
	}
	c, err := client.Connect(ctx, o)
	if err != nil {
		return err
	}
	defer c.Close(context.WithoutCancel(ctx)) //nolint:errcheck // the program ends
	id, err := c.CreateTask(ctx, client.TaskSpec{Pool: "counter", Type: "count", Payload: []byte(text), Attempts: 3})
	if err != nil {
		return err
	}
	fmt.Printf("task %s\n", id)
	words := "0"
	for {
		select {
		case p := <-progress:
			if p.TaskID != id {
				continue // somebody else's work in the workspace
			}
			if p.Kind != client.TaskProgress {
				words = p.Metadata["words"]
				fmt.Printf("%3.0f %%  %s\n", 100*p.Completion, p.Summary)
				continue
			}
			fmt.Println(p.State, p.Summary) // what the gateway says of the task
			if client.TaskStatus(p.State).Over() {
				fmt.Printf("%s words\n", words)
				return nil
			}
		case <-c.Done():
			return c.Err()
		case <-ctx.Done():
			return nil
		}
	}
}
