package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/config"
)

type sendCmd struct {
	To        string `required:"" placeholder:"ADDRESS" help:"Whom to send to."`
	Text      string `help:"The payload, as text."`
	Stdin     bool   `help:"Take the payload from standard input."`
	Type      string `default:"" help:"chat, control, tool_call, event, metric or opaque (default: chat; event and metric where the address takes nothing else)."`
	MessageID string `placeholder:"ID" help:"The message's id; a repeat with the same id is stored once."`
	Subject   string `placeholder:"SUBJECT" help:"The dotted subject."`
	Timeout   string `default:"30s" help:"How long to try."`
	Output    string `default:"text" enum:"text,json" help:"text or json."`
	clientFlags
}

var types = map[string]client.Type{
	"chat": client.Chat, "control": client.Control, "tool_call": client.ToolCall, "event": client.Event, "metric": client.Metric, "opaque": client.Opaque,
}

func (c *sendCmd) Run(p *program) error {
	if (c.Text != "") == c.Stdin {
		return usagef("say what to send with --text TEXT or --stdin, one of them")
	}
	if _, err := address.Parse(c.To); err != nil {
		return usagef("--to: %v", err)
	}
	options, err := c.options()
	if err != nil {
		return err
	}
	timeout, err := config.ParseDuration(c.Timeout)
	if err != nil || timeout <= 0 {
		return usagef("--timeout: %q is no positive duration", c.Timeout)
	}
	payload := []byte(c.Text)
	if c.Stdin {
		if payload, err = io.ReadAll(io.LimitReader(p.stdin, config.MaxPayloadLimit+1)); err != nil {
			return err
		}
		if len(payload) > config.MaxPayloadLimit {
			return fmt.Errorf("the payload is larger than %d bytes, the most that a gateway takes", config.MaxPayloadLimit)
		}
	}
	ctx, cancel := p.untilSignal()
	defer cancel()
	ctx, cancelTimeout := context.WithTimeout(ctx, timeout)
	defer cancelTimeout()

	// A sender takes nothing: what waits for it stays where it is.
	conn, err := c.connect(ctx, p, c.To, client.Options{ExplicitAcks: true, Handler: leaveAlone, MaxUnacked: 1})
	if err != nil {
		return err
	}
	receipt, err := conn.Send(ctx, c.To, payload, options...)
	closing, cancelClosing := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancelClosing()
	_ = conn.Close(closing)
	if err != nil {
		return explain(err, "", "")
	}
	if c.Output == "json" {
		return json.NewEncoder(p.stdout).Encode(map[string]any{
			"message_id": receipt.MessageID, "to": receipt.To, "stored": receipt.Confirmed, "duplicate": receipt.Duplicate,
		})
	}
	state := "stored"
	switch {
	case receipt.Duplicate:
		state = "stored before"
	case !receipt.Confirmed:
		state = "sent"
	}
	_, err = fmt.Fprintf(p.stdout, "%s %s %s\n", state, receipt.MessageID, printable(receipt.To))
	return err
}

// leaveAlone neither acknowledges nor refuses.
func leaveAlone(context.Context, *client.Message) error { return nil }

func (c *sendCmd) options() ([]client.SendOption, error) {
	var options []client.SendOption
	switch t, known := types[strings.ToLower(c.Type)]; {
	case known:
		options = append(options, client.WithType(t))
	case c.Type != "":
		return nil, usagef("--type %s does not exist; it is chat, control, tool_call, event, metric or opaque", c.Type)
	case !strings.HasPrefix(c.To, "event::") && !strings.HasPrefix(c.To, "metric::"):
		options = append(options, client.WithType(client.Chat))
	}
	if c.MessageID != "" {
		options = append(options, client.WithMessageID(c.MessageID))
	}
	if c.Subject != "" {
		options = append(options, client.WithSubject(c.Subject))
	}
	return options, nil
}
