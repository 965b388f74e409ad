package main

import (
	"context"
	"fmt"
	"strconv"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
)

type deadCmd struct {
	List   deadListCmd   `cmd:"" help:"List the messages that were given up, oldest first, and take nothing."`
	Replay deadReplayCmd `cmd:"" help:"Send messages that were given up to their addresses again, once each, as new messages of who sent them."`
	Purge  deadPurgeCmd  `cmd:"" help:"Let messages go that were given up."`
}

type deadListCmd struct {
	Prefix string `arg:"" optional:"" help:"Only of addresses that begin so, such as ag::w:: (default: all)."`
	Reason string `placeholder:"REASON" help:"Only rejected (by its receiver, again and again), unfinished (by workers), or unclaimed (no worker came)."`
	Limit  int    `default:"100" placeholder:"N" help:"At most so many (default: 100)."`
	outputFlag
	adminFlags
}

func (c *deadListCmd) Run(p *program) error {
	if c.Limit < 1 {
		return usagef("--limit must be at least 1")
	}
	return c.with(p, func(ctx context.Context, o *operator) error {
		o.patience = max(o.patience, logPatience)
		request := &adminv1.ListDeadLettersRequest{Prefix: c.Prefix, Reason: c.Reason}
		all, err := gather(ctx, o, o.ListDeadLetters, request, c.Limit, (*adminv1.ListDeadLettersResponse).GetDeadLetters)
		if err != nil {
			return err
		}
		header := []string{"POSITION", "GIVEN UP", "REASON", "ATTEMPTS", "TOPIC", "SOURCE", "MESSAGE", "PAYLOAD"}
		err = table(p, c.Output, all, header, func(d *adminv1.DeadLetter) []string {
			m := d.GetMessage()
			return []string{
				strconv.FormatUint(d.GetPosition(), 10), clock(d.GetGivenUpAtMs()), d.GetReason(), strconv.Itoa(int(d.GetAttempts())),
				m.GetTopic(), m.GetSource(), m.GetMessageId(), short(payloadText(m.GetPayload())),
			}
		})
		if err == nil && request.PageToken != "" {
			fmt.Fprintf(p.stderr, "there may be more; --limit shows more\n")
		}
		return err
	})
}

type deadReplayCmd struct {
	Positions []uint64 `arg:"" name:"position" help:"Which, by their positions as dead-letters list shows them."`
	outputFlag
	adminFlags
}

// Run stops at the first that cannot be replayed.
func (c *deadReplayCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		o.patience = max(o.patience, logPatience)
		var done []*adminv1.ReplayDeadLetterResponse
		for _, position := range c.Positions {
			sent, err := once(ctx, o, o.ReplayDeadLetter, &adminv1.ReplayDeadLetterRequest{Position: position})
			if err != nil {
				if c.Output == "json" && len(done) > 0 {
					_ = table(p, c.Output, done, nil, nil)
				}
				if len(c.Positions) > 1 {
					return fmt.Errorf("%d: %w", position, err)
				}
				return err
			}
			if done = append(done, sent); c.Output != "json" {
				fmt.Fprintf(p.stdout, "%d is sent again as %s\n", position, printable(sent.GetMessageId()))
			}
		}
		if c.Output == "json" {
			return table(p, c.Output, done, nil, nil)
		}
		return nil
	})
}

type deadPurgeCmd struct {
	Position *uint64 `arg:"" optional:"" help:"Which, by its position as dead-letters list shows it."`
	To       *uint64 `placeholder:"POSITION" help:"Instead: everything up to this position, that one included."`
	All      bool    `help:"Instead: everything that is there now."`
	outputFlag
	adminFlags
}

func (c *deadPurgeCmd) Run(p *program) error {
	request := &adminv1.PurgeDeadLettersRequest{}
	given := 0
	if c.Position != nil {
		given++
		request.Extent = &adminv1.PurgeDeadLettersRequest_Position{Position: *c.Position}
	}
	if c.To != nil {
		given++
		request.Extent = &adminv1.PurgeDeadLettersRequest_ToPosition{ToPosition: *c.To}
	}
	if c.All {
		given++
		request.Extent = &adminv1.PurgeDeadLettersRequest_All{All: true}
	}
	if given != 1 {
		return usagef("say which: a position, --to POSITION, or --all, one of them")
	}
	return c.with(p, func(ctx context.Context, o *operator) error {
		o.patience = max(o.patience, logPatience)
		done, err := once(ctx, o, o.PurgeDeadLetters, request)
		if err != nil {
			return err
		}
		if c.Output == "json" {
			return table(p, c.Output, []*adminv1.PurgeDeadLettersResponse{done}, nil, nil)
		}
		fmt.Fprintf(p.stdout, "%s\n", counted(done.GetPurged(), "dead letter is gone", "dead letters are gone"))
		return nil
	})
}

// counted is a number of things for people.
func counted(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
