package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/task"
)

type sendCmd struct {
	To        string `required:"" placeholder:"ADDRESS" help:"Whom to send to."`
	Text      string `help:"The payload, as text."`
	Stdin     bool   `help:"Take the payload from standard input."`
	Type      string `default:"" help:"chat, control, tool_call, event, metric or opaque (default: chat; event and metric where the address takes nothing else)."`
	MessageID string `placeholder:"ID" help:"The message's id; a repeat with the same id is stored once."`
	Subject   string `placeholder:"SUBJECT" help:"The dotted subject."`
	Wait      bool   `help:"Wait for the answer and print it: the message whose correlation id is this one's, as Reply of the SDK sends it."`
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
	timeout, err := c.patience(sendTimeout)
	if err != nil {
		return err
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
	if c.Timeout != "" {
		var cancelTimeout context.CancelFunc
		ctx, cancelTimeout = context.WithTimeout(ctx, timeout)
		defer cancelTimeout()
	}

	// A sender takes nothing: what waits for it stays where it is. An answer may
	// come behind that, so a wide window is asked for when one is awaited.
	o := client.Options{ExplicitAcks: true, Handler: leaveAlone, MaxUnacked: 1}
	var cancelWait context.CancelCauseFunc
	if c.Wait {
		ctx, cancelWait = context.WithCancelCause(ctx)
		defer cancelWait(nil)
		o.MaxUnacked, o.OnNotice = waitWindow, func(n client.Notice) {
			if err := notStarted(n, c.To); err != nil {
				cancelWait(err)
			}
		}
	}
	conn, to, err := c.connect(ctx, p, c.To, o)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancelClosing := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancelClosing()
		_ = conn.Close(closing)
	}()
	if c.Timeout == "" {
		var cancelTimeout context.CancelFunc
		ctx, cancelTimeout = context.WithTimeout(ctx, timeout)
		defer cancelTimeout()
	}
	if c.Wait {
		return c.request(ctx, p, conn, to, payload, options)
	}
	receipt, err := conn.Send(ctx, c.To, payload, options...)
	if err != nil {
		return to.explain(err)
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
	_, err = fmt.Fprintf(p.stdout, "%s %s %s\n", state, printable(receipt.MessageID), printable(receipt.To))
	return err
}

// sendTimeout is how long a send waits for its outcome, or for an answer, if
// --timeout does not say.
const sendTimeout = 30 * time.Second

// waitWindow is the most that a gateway grants by default.
const waitWindow = 10_000

// request sends, and prints the answer.
func (c *sendCmd) request(ctx context.Context, p *program, conn *client.Client, to *target, payload []byte, options []client.SendOption) error {
	answer, err := conn.Request(ctx, c.To, payload, options...)
	if failed, ok := errors.AsType[*startError](context.Cause(ctx)); ok && err != nil {
		return fmt.Errorf("%w\nthe message is stored for it; `%s tasks list --identity %s` shows its starts", failed, to.name, c.To)
	}
	if client.CodeOf(err) == client.CodeNoReply {
		return fmt.Errorf("%w\nthe message may be stored, and answered later: the answer then waits for %s, where `%s connect` shows it", err, to.who, to.name)
	}
	if err != nil {
		return to.explain(err)
	}
	return printMessage(p, answer, c.Output)
}

// startError says that the receiver of a message could not be started.
type startError struct{ who, why string }

func (e *startError) Error() string {
	return fmt.Sprintf("%s does not run and could not be started: %s", printable(e.who), printable(e.why))
}

// notStarted returns an error if a notice says that the start of an identity has
// failed for good.
func notStarted(n client.Notice, identity string) error {
	p, ok := n.(client.Progressed)
	if !ok || p.Progress.Kind != client.TaskProgress || p.Progress.Metadata["task_type"] != task.TypeStart ||
		p.Progress.State != "failed" || p.Progress.Source != identity {
		return nil
	}
	return &startError{identity, p.Progress.Summary}
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
