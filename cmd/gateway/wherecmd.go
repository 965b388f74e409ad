package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/config"
)

type whereCmd struct {
	MessageID string `arg:"" name:"message-id" help:"The id, as receipts and messages have it."`
	Since     string `placeholder:"DURATION" help:"Read the log from so long ago on. Without it what is in memory is looked through, and, for an id that the gateway drew, the log around the time in it."`
	outputFlag
	adminFlags
}

// Help says what the columns mean.
func (*whereCmd) Help() string {
	return "DELIVERIES is how often the receiver that has the message open was given it; - if nobody has: how often one was delivered that is done is not kept."
}

// Run says where a message is.
func (c *whereCmd) Run(p *program) error {
	since, err := sinceFlag(c.Since)
	if err != nil {
		return err
	}
	return c.with(p, func(ctx context.Context, o *operator) error {
		o.patience = max(o.patience, logPatience)
		found, err := once(ctx, o, o.FindMessage, &adminv1.FindMessageRequest{MessageId: c.MessageID, SinceMs: since})
		if err != nil {
			return err
		}
		list := found.GetMessages()
		if len(list) > 0 || c.Output == "json" {
			err = table(p, c.Output, list, []string{"STATE", "SOURCE", "TOPIC", "AT", "POSITION", "DELIVERIES", "REASON"}, func(m *adminv1.MessagePlace) []string {
				deliveries := "" // is known only while it is open
				if n := m.GetDeliveries(); n > 0 {
					deliveries = strconv.FormatUint(uint64(n), 10)
				}
				return []string{
					m.GetState(), m.GetSource(), m.GetTopic(), clock(m.GetTimestampMs()), strconv.FormatUint(m.GetPosition(), 10),
					deliveries, m.GetReason(),
				}
			})
		}
		switch {
		case err != nil || len(list) > 0:
			return err
		case found.GetIncomplete():
			return fmt.Errorf("no message with this id is in memory; give --since, such as --since 24h, to read the log from there on")
		}
		return fmt.Errorf("no message with this id was found; --since, such as --since 24h, reads more of the log")
	})
}

// logPatience is how long a command that reads the log may take, if --timeout
// does not say more.
const logPatience = 60 * time.Second

// sinceFlag is the time of a --since in Unix milliseconds, 0 for none.
func sinceFlag(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	d, err := config.ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, usagef("--since: %q is no positive duration", text)
	}
	return time.Now().Add(-d).UnixMilli(), nil
}
