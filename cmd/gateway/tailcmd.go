package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/address"
)

type tailCmd struct {
	Address string   `arg:"" help:"The address to observe, such as ag::w::i::s or ga::w."`
	Output  string   `default:"text" enum:"text,json" help:"text, or json with one object a line."`
	Subject []string `sep:"none" placeholder:"FILTER" help:"Only messages of such subjects: * is one segment, a final # any number. May be repeated."`
	Count   int      `placeholder:"N" help:"End after N messages."`
	adminFlags
}

// Run shows what is stored for an address, and takes nothing.
func (c *tailCmd) Run(p *program) error {
	if c.Count < 0 {
		return usagef("--count must not be negative")
	}
	if _, err := address.Parse(c.Address); err != nil {
		return usagef("%v", err)
	}
	return c.with(p, func(ctx context.Context, o *operator) error {
		stream, err := o.AdminClient.Tail(ctx, &adminv1.TailRequest{Address: c.Address, Subjects: c.Subject})
		if err != nil {
			return o.explain(err)
		}
		for n := 0; c.Count == 0 || n < c.Count; {
			r, err := stream.Recv()
			if err != nil {
				return o.ended(ctx, err)
			}
			if r.GetDropped() > 0 {
				fmt.Fprintf(p.stderr, "%d messages are missing here: this command did not keep up\n", r.GetDropped())
			}
			if r.GetMessage() == nil {
				fmt.Fprintf(p.stderr, "observing %s%s; what is stored from now on is shown\n", printable(c.Address), c.narrowed())
				continue
			}
			n++
			if err := printStored(p, r.GetMessage(), c.Output); err != nil {
				return err
			}
		}
		return nil
	})
}

// narrowed says which subjects are shown.
func (c *tailCmd) narrowed() string {
	if len(c.Subject) == 0 {
		return ""
	}
	return ", subjects " + printable(strings.Join(c.Subject, ", "))
}

// printStored prints a message as text or as one line of JSON.
func printStored(p *program, m *adminv1.StoredMessage, output string) error {
	if output == "json" {
		return json.NewEncoder(p.stdout).Encode(storedObject(m))
	}
	at := time.UnixMilli(m.GetTimestampMs()).UTC().Format("15:04:05.000")
	source, text := m.GetSource(), payloadText(m.GetPayload())
	if u := m.GetProgress(); u != nil {
		source, text = u.GetSource(), progressText(u)
	}
	kind := printable(m.GetMessageType())
	if m.GetSubject() != "" {
		kind += " (" + printable(m.GetSubject()) + ")"
	}
	_, err := fmt.Fprintf(p.stdout, "%s %s → %s  %s @%d %s  %s\n", at, printable(source), printable(m.GetTopic()), kind,
		m.GetPosition(), printable(m.GetMessageId()), text)
	return err
}

// progressText is progress as one line: how far, what of, what is said of it, and
// for whom if not for all.
func progressText(u *adminv1.StoredProgress) string {
	parts := []string{fmt.Sprintf("%3.0f %%", 100*u.GetCompletion())}
	add := func(format string, set bool, args ...any) {
		if set {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	add("task %s", u.GetTaskId() != "", printable(u.GetTaskId()))
	add("%s", u.GetState() != "", printable(u.GetState()))
	add("step %d of %d", u.GetTotalSteps() > 0, u.GetStepNumber(), u.GetTotalSteps())
	add("%s", u.GetStep() != "", printable(u.GetStep()))
	add("%s", u.GetSummary() != "", payloadText([]byte(u.GetSummary())))
	add("(for %s)", u.GetRecipient() != "", printable(u.GetRecipient()))
	return strings.Join(parts, "  ")
}

// storedObject is a message with its payload as text as well, if it is text.
func storedObject(m *adminv1.StoredMessage) map[string]any {
	o := object(m)
	if m.GetProgress() == nil && utf8.Valid(m.GetPayload()) {
		o["text"] = string(m.GetPayload())
	}
	return o
}
