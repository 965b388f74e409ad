package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/aether-gateway/gateway/client"
	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/auth"
)

// startsCell measures how many agents a second are started by a message each,
// until each has read it. All are of this process, so that no time goes into
// processes.
func startsCell() cell {
	return cell{
		Name: cellStarts, Title: fmt.Sprintf("%d messages to as many agents that are not there", startedAgents),
		Systems: []string{nameRabbitMQ, nameEmbedded}, setup: time.Second, takes: 15 * time.Second,
		open: func(ctx context.Context, s *site, c cell, _ int) (stage, error) {
			return openStarting(ctx, s, c.Systems)
		},
	}
}

const (
	startedAgents  = 1000
	startedImpl    = "started"
	startedProfile = "here"
	// startedAtOnce is how many of them connect at once.
	startedAtOnce = 64
	startPatience = 2 * time.Minute
)

type starting struct {
	site *site
	runs int
	keys auth.Key
}

// openStarting registers what is started.
func openStarting(ctx context.Context, s *site, systems []string) (*starting, error) {
	keys, err := auth.LoadKeyFiles(s.key)
	if err != nil {
		return nil, err
	}
	t := &starting{site: s, keys: keys.First()}
	token, err := t.token(auth.Claims{Kind: auth.KindOperator, Subject: "bench", Workspaces: []string{auth.AllWorkspaces}})
	if err != nil {
		return nil, err
	}
	for _, system := range systems {
		if err := t.register(ctx, system, token); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (t *starting) token(c auth.Claims) (string, error) {
	c.ExpiresAt = time.Now().Add(tokenLife)
	return auth.Mint(t.keys, c)
}

func (t *starting) register(ctx context.Context, system, token string) error {
	conn, err := grpc.NewClient(t.site.systems[system].(*server).addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // nothing of it is under way
	_, err = adminv1.NewAdminClient(conn).RegisterImplementation(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token),
		&adminv1.RegisterImplementationRequest{Implementation: &adminv1.Implementation{Implementation: startedImpl, Profile: startedProfile}})
	return err
}

// wave is the agents of a round.
type wave struct {
	addr    string
	ctx     context.Context
	fail    context.CancelCauseFunc
	places  chan struct{}
	workers sync.WaitGroup

	mu            sync.Mutex
	started, read map[string]int // by identity
	done          chan struct{}  // closed when all have read
}

func (t *starting) run(ctx context.Context, system string, _ int) (o outcome, err error) {
	t.runs++
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	w := &wave{
		addr: t.site.systems[system].(*server).addr, places: make(chan struct{}, startedAtOnce),
		started: map[string]int{}, read: map[string]int{}, done: make(chan struct{}),
	}
	w.ctx, w.fail = context.WithCancelCause(ctx)
	defer w.fail(nil)
	token, err := t.token(auth.Claims{Kind: auth.KindOrchestrator, Impl: "bench", Spec: "*", Workspaces: []string{auth.AllWorkspaces}})
	if err != nil {
		return o, err
	}
	orchestrator, err := client.Connect(ctx, client.Options{
		Addr: w.addr, Token: token, AllowPlaintext: true, Identity: client.Orchestrator("bench", "1", startedProfile),
		OnNotice: func(n client.Notice) {
			if a, ok := n.(client.Assigned); ok {
				w.workers.Go(func() { w.work(a.Assignment) })
			}
		},
	})
	if err != nil {
		return o, err
	}
	sender, err := client.Connect(ctx, client.Options{
		Addr: w.addr, Token: t.site.token, AllowPlaintext: true, Identity: client.Agent(workspace, implementation, "starter"),
	})
	if err != nil {
		return o, errors.Join(err, orchestrator.Close(ctx))
	}
	begun := time.Now()
	err = t.send(w.ctx, sender)
	if err == nil {
		select {
		case <-w.done:
			o.Starts = startedAgents / time.Since(begun).Seconds()
		case <-w.ctx.Done():
			err = context.Cause(w.ctx)
		}
	}
	err = errors.Join(err, sender.Close(ctx), orchestrator.Close(ctx))
	w.workers.Wait()
	return o, errors.Join(err, w.check())
}

// send sends a message to each agent of the round.
func (t *starting) send(ctx context.Context, sender *client.Client) error {
	var pending []*client.Pending
	for i := range startedAgents {
		p, err := sender.SendAsync(ctx, fmt.Sprintf("ag::%s::%s::%d-%d", workspace, startedImpl, t.runs, i), []byte("begin"))
		if err != nil {
			return err
		}
		pending = append(pending, p)
	}
	for _, p := range pending {
		if _, err := p.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// work is an agent from its start to its end.
func (w *wave) work(a *client.Assignment) {
	w.mu.Lock()
	w.started[a.Identity]++
	w.mu.Unlock()
	w.places <- struct{}{}
	defer func() { <-w.places }()
	read := make(chan struct{}, 1)
	c, err := client.Connect(w.ctx, client.Options{
		Addr: w.addr, TaskToken: a.Token, AllowPlaintext: true, Identity: client.Agent(a.Workspace, a.Implementation, a.Specifier),
		Handler: func(context.Context, *client.Message) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.read[a.Identity]++; len(w.read) == startedAgents && w.read[a.Identity] == 1 {
				close(w.done)
			}
			select {
			case read <- struct{}{}:
			default:
			}
			return nil
		},
	})
	if err != nil {
		w.fail(err)
		return
	}
	select {
	case <-read:
	case <-w.ctx.Done():
	}
	if err := c.Close(context.WithoutCancel(w.ctx)); err != nil {
		w.fail(err)
	}
}

// check wants one start and one message for each.
func (w *wave) check() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for identity, n := range w.started {
		if n != 1 || w.read[identity] != 1 {
			return fmt.Errorf("%s was started %d times, and read %d messages", identity, n, w.read[identity])
		}
	}
	if len(w.started) != startedAgents {
		return fmt.Errorf("%d were started", len(w.started))
	}
	return nil
}

func (t *starting) close() error { return nil }

// begun are the figures of the cell.
func (r *report) begun() []row {
	var rows []row
	for _, x := range []struct{ name, system string }{{"gateway", nameRabbitMQ}, {"embedded", nameEmbedded}} {
		rows = append(rows, compare(x.name+", agents started by a message each", "/s",
			r.rounds(cellStarts, x.system, func(o *outcome) float64 { return o.Starts }), "", nil))
	}
	return rows
}
