package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/address"
)

type tasksCreateCmd struct {
	For      string            `placeholder:"IDENTITY" help:"Who is to do it, connected or not, such as ag::demo::writer::1."`
	Pool     string            `placeholder:"IMPLEMENTATION" help:"The implementation of which one worker is to do it."`
	Type     string            `placeholder:"T" help:"What sort of task it is, for those who do it."`
	Text     string            `help:"The payload, as text."`
	Meta     map[string]string `mapsep:"none" placeholder:"K=V" help:"Metadata; may be repeated."`
	Param    map[string]string `mapsep:"none" placeholder:"K=V" help:"A launch parameter for who has to be started, where the registry lets it be set; may be repeated."`
	Once     string            `placeholder:"KEY" help:"A repeated command with the same key returns the task of the first."`
	Attempts int               `default:"1" placeholder:"N" help:"How often it is tried."`
	Output   string            `default:"text" enum:"text,json" help:"text, which is the task's id alone, or json."`
	clientFlags
}

// Run creates a task as a client, and prints its id.
func (c *tasksCreateCmd) Run(p *program) error {
	switch {
	case (c.For == "") == (c.Pool == ""):
		return usagef("say who is to do it with --for IDENTITY or --pool IMPLEMENTATION, one of them")
	case c.Attempts < 1 || c.Attempts > 100:
		return usagef("--attempts must be 1 to 100")
	}
	if c.For != "" {
		if _, err := address.Parse(c.For); err != nil {
			return usagef("--for: %v", err)
		}
	}
	timeout, err := c.patience(sendTimeout)
	if err != nil {
		return err
	}
	ctx, cancel := p.untilSignal()
	defer cancel()
	ctx, cancelTimeout := context.WithTimeout(ctx, timeout)
	defer cancelTimeout()
	// What waits for the creator stays where it is.
	conn, to, err := c.connect(ctx, p, c.For, client.Options{ExplicitAcks: true, Handler: leaveAlone, MaxUnacked: 1})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancelClosing := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancelClosing()
		_ = conn.Close(closing)
	}()
	id, err := conn.CreateTask(ctx, client.TaskSpec{
		For: c.For, Pool: c.Pool, Type: c.Type, Payload: []byte(c.Text), Metadata: c.Meta, LaunchParams: c.Param, Key: c.Once, Attempts: c.Attempts,
	})
	if err != nil {
		return to.explain(err)
	}
	if c.Output == "json" {
		return json.NewEncoder(p.stdout).Encode([]map[string]string{{"task_id": id}})
	}
	_, err = fmt.Fprintln(p.stdout, printable(id))
	return err
}
