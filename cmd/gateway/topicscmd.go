package main

import (
	"context"
	"fmt"
	"strconv"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
)

type topicsCmd struct {
	List topicsListCmd `cmd:"" help:"List addresses with their rate, and with what waits: how many messages, or since when the oldest does."`
}

type topicsListCmd struct {
	Prefix string `arg:"" optional:"" help:"Only addresses that begin so, such as ag::w::."`
	Limit  int    `default:"500" placeholder:"N" help:"At most so many."`
	outputFlag
	adminFlags
}

func (c *topicsListCmd) Run(p *program) error {
	if c.Limit < 1 {
		return usagef("--limit must be at least 1")
	}
	return c.with(p, func(ctx context.Context, o *operator) error {
		o.patience = max(o.patience, logPatience)
		request := &adminv1.ListTopicsRequest{Prefix: c.Prefix, PageSize: 100} // counting what waits takes its time
		all, err := gather(ctx, o, o.ListTopics, request, c.Limit, (*adminv1.ListTopicsResponse).GetTopics)
		if err != nil {
			return err
		}
		return table(p, c.Output, all, []string{"TOPIC", "RATE", "CONNECTED", "WAITING", "OLDEST"}, func(t *adminv1.Topic) []string {
			connected := ""
			if t.GetConnected() {
				connected = "yes"
			}
			waiting := strconv.FormatUint(t.GetBacklog(), 10)
			if !t.GetBacklogExact() {
				waiting += "+"
			}
			return []string{t.GetTopic(), fmt.Sprintf("%.1f/s", t.GetRate()), connected, waiting, ago(t.GetOldestUnreadMs() / 1000)}
		})
	})
}
