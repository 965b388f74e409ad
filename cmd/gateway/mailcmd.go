package main

import (
	"context"
	"fmt"
	"strconv"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/address"
)

type mailCmd struct {
	Peek   mailPeekCmd   `cmd:"" help:"Show what waits for an identity, oldest first, and take nothing."`
	Skip   mailSkipCmd   `cmd:"" help:"Pass over the oldest messages that wait for an identity, which is not connected: they will not be delivered."`
	Purge  mailPurgeCmd  `cmd:"" help:"Pass over everything that waits for an identity, which is not connected."`
	Replay mailReplayCmd `cmd:"" help:"Have the mail of an identity, which is not connected, delivered again."`
}

// mailOf names whose mail is meant.
type mailOf struct {
	Identity string `arg:"" help:"The identity, such as ag::w::i::s; of a workflow engine event::w."`
	outputFlag
	adminFlags
}

func (m *mailOf) check() error {
	if _, err := address.Parse(m.Identity); err != nil {
		return usagef("%v", err)
	}
	return nil
}

type mailPeekCmd struct {
	Limit int `default:"20" placeholder:"N" help:"At most so many."`
	mailOf
}

func (c *mailPeekCmd) Run(p *program) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Limit < 1 {
		return usagef("--limit must be at least 1")
	}
	return c.with(p, func(ctx context.Context, o *operator) error {
		o.patience = max(o.patience, logPatience)
		request := &adminv1.PeekMailRequest{Address: c.Identity}
		incomplete := false
		all, err := gather(ctx, o, o.PeekMail, request, c.Limit, func(page *adminv1.PeekMailResponse) []*adminv1.StoredMessage {
			incomplete = page.GetIncomplete()
			return page.GetMessages()
		})
		if err != nil {
			return err
		}
		err = table(p, c.Output, all, []string{"POSITION", "AT", "SOURCE", "TYPE", "MESSAGE", "PAYLOAD"}, func(m *adminv1.StoredMessage) []string {
			return []string{
				strconv.FormatUint(m.GetPosition(), 10), clock(m.GetTimestampMs()), m.GetSource(), m.GetMessageType(), m.GetMessageId(), short(payloadText(m.GetPayload())),
			}
		})
		if err != nil {
			return err
		}
		if request.PageToken != "" {
			fmt.Fprintf(p.stderr, "more waits; --limit shows more\n")
		}
		if incomplete {
			fmt.Fprintf(p.stderr, "gateway: not all: the log could not be read to its end\n")
			return silentError{}
		}
		return nil
	})
}

// short is a text that fits into a table.
func short(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

type mailSkipCmd struct {
	Count int    `default:"1" placeholder:"N" help:"How many, at most 500."`
	To    uint64 `placeholder:"POSITION" help:"Instead: everything up to this position, that one included."`
	mailOf
}

func (c *mailSkipCmd) Run(p *program) error {
	if err := c.check(); err != nil {
		return err
	}
	if c.Count < 1 || c.Count > 500 {
		return usagef("--count must be in 1..500")
	}
	request := &adminv1.SkipMailRequest{Address: c.Identity, Extent: &adminv1.SkipMailRequest_Count{Count: int32(c.Count)}}
	if c.To > 0 {
		request.Extent = &adminv1.SkipMailRequest_ToPosition{ToPosition: c.To}
	}
	return c.skip(p, request)
}

func (m *mailOf) skip(p *program, request *adminv1.SkipMailRequest) error {
	return m.with(p, func(ctx context.Context, o *operator) error {
		o.patience = max(o.patience, logPatience)
		done, err := once(ctx, o, o.SkipMail, request)
		if err != nil {
			return err
		}
		if m.Output == "json" {
			return table(p, m.Output, []*adminv1.SkipMailResponse{done}, nil, nil)
		}
		switch {
		case request.GetAll():
			fmt.Fprintf(p.stdout, "everything that waited for %s is passed over\n", m.Identity)
		case done.GetSkipped() > 0:
			what := fmt.Sprintf("%d messages are", done.GetSkipped())
			if done.GetSkipped() == 1 {
				what = "1 message is"
			}
			fmt.Fprintf(p.stdout, "%s passed over, up to position %d\n", what, done.GetPosition())
		default:
			fmt.Fprintf(p.stdout, "everything up to position %d is passed over\n", done.GetPosition())
		}
		return nil
	})
}

type mailPurgeCmd struct {
	mailOf
}

func (c *mailPurgeCmd) Run(p *program) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.skip(p, &adminv1.SkipMailRequest{Address: c.Identity, Extent: &adminv1.SkipMailRequest_All{All: true}})
}

type mailReplayCmd struct {
	From  *uint64 `placeholder:"POSITION" help:"From this position on."`
	Since string  `placeholder:"DURATION" help:"Instead: what was sent in the last so long, such as 1h."`
	mailOf
}

func (c *mailReplayCmd) Run(p *program) error {
	if err := c.check(); err != nil {
		return err
	}
	request := &adminv1.ReplayMailRequest{Address: c.Identity}
	switch {
	case (c.From != nil) == (c.Since != ""):
		return usagef("say from where with --from POSITION or --since DURATION, one of them")
	case c.From != nil:
		request.Start = &adminv1.ReplayMailRequest_FromPosition{FromPosition: *c.From}
	default:
		since, err := sinceFlag(c.Since)
		if err != nil {
			return err
		}
		request.Start = &adminv1.ReplayMailRequest_SinceMs{SinceMs: since}
	}
	return c.with(p, func(ctx context.Context, o *operator) error {
		o.patience = max(o.patience, logPatience)
		done, err := once(ctx, o, o.ReplayMail, request)
		if err != nil {
			return err
		}
		if c.Output == "json" {
			return table(p, c.Output, []*adminv1.ReplayMailResponse{done}, nil, nil)
		}
		fmt.Fprintf(p.stdout, "what %s was sent from position %d on comes again when it connects\n", c.Identity, done.GetPosition())
		return nil
	})
}
