package main

import (
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
	ctx, cancel := p.untilSignal()
	defer cancel()
	o, err := c.operate(ctx, p)
	if err != nil {
		return err
	}
	defer o.close()
	o.patience = max(o.patience, logPatience)
	request := &adminv1.ListTopicsRequest{Prefix: c.Prefix}
	var all []*adminv1.Topic
	for {
		request.PageSize = int32(min(c.Limit-len(all), 100))
		page, err := once(ctx, o, o.ListTopics, request)
		if err != nil {
			return err
		}
		all = append(all, page.GetTopics()...)
		if request.PageToken = page.GetNextPageToken(); request.PageToken == "" || len(all) >= c.Limit {
			break
		}
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
}
