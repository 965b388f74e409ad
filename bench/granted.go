package main

import (
	"context"
	"fmt"
	"time"

	"github.com/aether-gateway/gateway/client"
)

// grantsCell measures how many messages go from one agent to another a second
// when each is sent in a third one's name, under the last of a chain of grants,
// against as many without, both by the Go SDK and with as many under way.
func grantsCell() cell {
	return cell{
		Name: cellGrants, Title: "1 → 1, on behalf of another", Systems: []string{nameRabbitMQ, nameEmbedded},
		setup: time.Second, takes: 2*grantedFor + time.Second,
		open: func(_ context.Context, s *site, _ cell, _ int) (stage, error) { return &granted{site: s}, nil },
	}
}

const (
	grantedFor    = 2 * time.Second
	grantedWindow = 512 // without a receipt
	grantedChain  = 3   // grants, each of the one before
)

type granted struct {
	site *site
	n    int
}

// run measures one and then the other, with clients of their own.
func (g *granted) run(ctx context.Context, system string, _ int) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*grantedFor+2*patience)
	defer cancel()
	var all []*client.Client
	defer func() {
		for _, c := range all {
			_ = c.Close(ctx)
		}
	}()
	connect := func(handle client.Handler) (c *client.Client, err error) {
		t := g.site.systems[system].(*server).target
		g.n++
		if c, err = client.Connect(ctx, client.Options{
			Addr: t.addr, Token: t.token, AllowPlaintext: true, Handler: handle, MaxUnacked: 1000, MaxPending: grantedWindow,
			Identity: client.Agent(workspace, implementation, fmt.Sprintf("granted-%d", g.n)),
		}); err == nil {
			all = append(all, c)
		}
		return c, err
	}
	reader, err := connect(func(context.Context, *client.Message) error { return nil })
	if err != nil {
		return outcome{}, err
	}
	sender, err := connect(nil)
	if err != nil {
		return outcome{}, err
	}
	id, err := chain(ctx, sender.Address(), func() (*client.Client, error) { return connect(nil) })
	if err != nil {
		return outcome{}, err
	}
	var o outcome
	if o.Granted, err = receipted(ctx, sender, reader.Address(), client.WithGrant(id)); err != nil {
		return o, err
	}
	o.Ungranted, err = receipted(ctx, sender, reader.Address())
	return o, err
}

// chain makes grants, each of the one before, and returns the last one, which is
// the delegate's.
func chain(ctx context.Context, delegate string, connect func() (*client.Client, error)) (id string, err error) {
	holder, err := connect()
	for hops := grantedChain - 1; hops >= 0 && err == nil; hops-- {
		to, next := delegate, holder
		if hops > 0 {
			if next, err = connect(); err != nil {
				return "", err
			}
			to = next.Address()
		}
		terms := client.GrantTerms{Workspaces: []string{workspace}, Addresses: []string{"ag::" + workspace + "::*"}, Operations: []string{"send"}, Level: 20, Hops: hops}
		var made client.Grant
		if id == "" {
			made, err = holder.IssueGrant(ctx, to, terms)
		} else {
			made, err = holder.DeriveGrant(ctx, id, to, terms)
		}
		id, holder = made.ID, next
	}
	return id, err
}

// receipted returns how many messages a second have a receipt.
func receipted(ctx context.Context, from *client.Client, to string, opts ...client.SendOption) (float64, error) {
	var open []*client.Pending
	begun, counted := time.Now(), 0
	for sending := true; sending || len(open) > 0; {
		if sending = time.Since(begun) < grantedFor; sending && len(open) < grantedWindow {
			p, err := from.SendAsync(ctx, to, []byte("on behalf of another"), opts...)
			if err != nil {
				return 0, err
			}
			open = append(open, p)
			continue
		}
		if len(open) > 0 {
			if _, err := open[0].Wait(ctx); err != nil {
				return 0, err
			}
			open = open[1:]
			counted++
		}
	}
	return float64(counted) / time.Since(begun).Seconds(), nil
}

func (g *granted) close() error { return nil }

// onBehalf are the figures of the cell.
func (r *report) onBehalf() []row {
	var rows []row
	for _, x := range []struct{ name, system string }{{"gateway", nameRabbitMQ}, {"embedded", nameEmbedded}} {
		rows = append(rows, compare(x.name+", messages under a grant by the SDK", "/s",
			r.rounds(cellGrants, x.system, func(o *outcome) float64 { return o.Granted }),
			"without one", r.rounds(cellGrants, x.system, func(o *outcome) float64 { return o.Ungranted })))
	}
	return rows
}
