package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aether-gateway/gateway/client"
)

// progressCell measures how many reports of progress go from one agent to
// another a second, against as many broadcasts, both by the Go SDK and with as
// many under way.
func progressCell() cell {
	return cell{
		Name: cellProgress, Title: "progress reports, 1 → 1", Systems: []string{nameRabbitMQ, nameEmbedded},
		setup: time.Second, takes: 2*progressFor + time.Second,
		open: func(_ context.Context, s *site, _ cell, _ int) (stage, error) { return &reporting{site: s}, nil },
	}
}

const (
	progressFor    = 2 * time.Second
	progressWindow = 256 // under way; fewer than the SDK keeps of notices
)

type reporting struct {
	site *site
	n    int
}

func (p *reporting) run(ctx context.Context, system string, _ int) (outcome, error) {
	reports, err := p.flow(ctx, system, func(ctx context.Context, c *client.Client) error {
		return c.Report(ctx, client.Progress{Completion: 0.5, Summary: "half of it"})
	})
	if err != nil {
		return outcome{}, err
	}
	broadcasts, err := p.flow(ctx, system, func(ctx context.Context, c *client.Client) error {
		_, err := c.Post(ctx, "ga::"+workspace, []byte("half of it"))
		return err
	})
	return outcome{Reports: reports, Broadcasts: broadcasts}, err
}

// flow returns how many a second of what emit sends came.
func (p *reporting) flow(ctx context.Context, system string, emit func(context.Context, *client.Client) error) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, progressFor+patience)
	defer cancel()
	came := make(chan struct{}, 2*progressWindow)
	watcher, err := p.connect(ctx, system, func(n client.Notice) {
		if _, ok := n.(client.Progressed); ok {
			came <- struct{}{}
		}
	}, func(context.Context, *client.Message) error {
		came <- struct{}{}
		return nil
	})
	if err != nil {
		return 0, err
	}
	defer watcher.Close(ctx) //nolint:errcheck // nothing of it is under way
	reporter, err := p.connect(ctx, system, nil, nil)
	if err != nil {
		return 0, err
	}
	defer reporter.Close(ctx) //nolint:errcheck // as above
	begun, counted, open := time.Now(), 0, 0
	for time.Since(begun) < progressFor || open > 0 {
		if open < progressWindow && time.Since(begun) < progressFor {
			if err := emit(ctx, reporter); err != nil {
				return 0, err
			}
			open++
			select {
			case <-came:
			default:
				continue
			}
		} else {
			select {
			case <-came:
			case <-ctx.Done():
				return 0, errors.Join(fmt.Errorf("%d did not come", open), ctx.Err())
			}
		}
		open--
		counted++
	}
	return float64(counted) / time.Since(begun).Seconds(), nil
}

func (p *reporting) connect(ctx context.Context, system string, notice func(client.Notice), handle func(context.Context, *client.Message) error) (*client.Client, error) {
	t := p.site.systems[system].(*server).target
	p.n++
	return client.Connect(ctx, client.Options{
		Addr: t.addr, Token: t.token, AllowPlaintext: true, OnNotice: notice, Handler: handle, SharedBuffer: 2 * progressWindow,
		Identity: client.Agent(workspace, implementation, fmt.Sprintf("progress-%d", p.n)),
	})
}

func (p *reporting) close() error { return nil }

// reported are the figures of the cell.
func (r *report) reported() []row {
	var rows []row
	for _, x := range []struct{ name, system string }{{"gateway", nameRabbitMQ}, {"embedded", nameEmbedded}} {
		rows = append(rows, compare(x.name+", progress reports by the SDK", "/s",
			r.rounds(cellProgress, x.system, func(o *outcome) float64 { return o.Reports }),
			"broadcasts", r.rounds(cellProgress, x.system, func(o *outcome) float64 { return o.Broadcasts })))
	}
	return rows
}
