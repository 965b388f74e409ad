package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aether-gateway/gateway/client"
)

type connectCmd struct {
	Output string `default:"text" enum:"text,json" help:"text, or json with one object a line."`
	Count  int    `placeholder:"N" help:"End after N messages."`
	Echo   bool   `help:"Also show this principal's own broadcasts."`
	clientFlags
}

func (c *connectCmd) Run(p *program) error {
	if c.Count < 0 {
		return usagef("--count must not be negative")
	}
	ctx, cancel := p.untilSignal()
	defer cancel()
	conn, to, err := c.connect(ctx, p, "", client.Options{Echo: c.Echo, OnNotice: p.notice})
	if errors.Is(err, errInterrupted) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	for n := 0; c.Count == 0 || n < c.Count; n++ {
		m, err := conn.Receive(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return to.explain(err)
		}
		if err := printMessage(p, m, c.Output); err != nil {
			m.Nack("the output is closed")
			return err
		}
		m.Ack()
	}
	return nil
}

// printMessage prints a message as text or as one line of JSON.
func printMessage(p *program, m *client.Message, output string) error {
	position, known := m.Position()
	if output == "json" {
		row := map[string]any{
			"source": m.Source, "topic": m.Topic, "message_id": m.ID, "message_type": strings.ToLower(m.Type.String()), "workspace": m.Workspace,
			"payload": m.Payload, "redelivered": m.Redelivered,
		}
		if known {
			row["position"] = position
		}
		if !m.Time.IsZero() {
			row["timestamp_ms"] = m.Time.UnixMilli()
		}
		if m.Subject != "" {
			row["subject"] = m.Subject
		}
		if len(m.Metadata) > 0 {
			row["metadata"] = m.Metadata
		}
		if utf8.Valid(m.Payload) {
			row["text"] = string(m.Payload)
		}
		return json.NewEncoder(p.stdout).Encode(row)
	}
	place := "live"
	if known {
		place = fmt.Sprintf("@%d", position)
	}
	again := ""
	if m.Redelivered {
		again = " again"
	}
	_, err := fmt.Fprintf(p.stdout, "%s → %s  %s %s%s  %s\n", printable(m.Source), printable(m.Topic), strings.ToLower(m.Type.String()), place, again, payloadText(m.Payload))
	return err
}

// payloadText is a payload on one line, as text if it is text.
func payloadText(b []byte) string {
	if !utf8.Valid(b) {
		return fmt.Sprintf("(%d bytes)", len(b))
	}
	return printable(string(b))
}

// printable keeps what others have written from steering the terminal: what
// cannot be seen is shown as it would be written in a program, so that two names
// that differ look different.
func printable(s string) string {
	if !strings.ContainsFunc(s, unseen) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteRune('⏎')
		case r == '\t':
			b.WriteByte(' ')
		case unseen(r):
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func unseen(r rune) bool { return !unicode.IsPrint(r) }

// lines is printable of a text that may have several lines.
func lines(s string) string {
	all := strings.Split(s, "\n")
	for i, line := range all {
		all[i] = printable(line)
	}
	return strings.Join(all, "\n")
}

// notice tells on standard error what happens to the connection.
func (p *program) notice(n client.Notice) {
	switch n := n.(type) {
	case client.Connected:
		as := first(n.Session.Address, "a principal without an address")
		fmt.Fprintf(p.stderr, "connected as %s\n", printable(as))
	case client.Disconnected:
		if !n.Final {
			fmt.Fprintf(p.stderr, "connection lost, connecting again: %s\n", lines(n.Err.Error()))
		}
	case client.Gap:
		count := "messages"
		if n.Dropped > 0 {
			count = fmt.Sprintf("%d messages", n.Dropped)
		}
		fmt.Fprintf(p.stderr, "%s to %s are missing: %s\n", count, printable(first(n.Topic, "several addresses")), printable(n.Reason))
	case client.CredentialExpiring:
		fmt.Fprintf(p.stderr, "the credential expires at %s; then this connection ends\n", n.At.Format(time.RFC3339))
	case client.Progressed:
		fmt.Fprintln(p.stderr, progressLine(&n.Progress))
	case client.Refused:
		fmt.Fprintf(p.stderr, "refused: %s\n", lines(n.Err.Error()))
	}
}

// progressLine is a progress on one line.
func progressLine(u *client.Progress) string {
	line := "progress of " + printable(u.Source)
	if u.TaskID != "" {
		line = fmt.Sprintf("task %s of %s", printable(u.TaskID), printable(u.Source))
		if u.Kind == client.TaskProgress && u.Metadata["task_type"] != "" {
			line = printable(u.Metadata["task_type"]) + " " + line
		}
	}
	line += ": " + printable(u.State)
	if u.Completion > 0 && u.Completion < 1 {
		line += fmt.Sprintf(" %.0f%%", 100*u.Completion)
	}
	if u.Summary != "" {
		line += " (" + printable(u.Summary) + ")"
	}
	return line
}

// untilSignal is a context that ends with the first signal.
func (p *program) untilSignal() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		select {
		case <-p.signals:
			cancel(errInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

var errInterrupted = errors.New("interrupted")
