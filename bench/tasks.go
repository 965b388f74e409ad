package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/client"
)

// tasksCell measures how many tasks a second are created by one agent, handed
// to another one, claimed and completed by it, and told of to the first, by the
// Go SDK. There is nothing to compare it with.
func tasksCell() cell {
	return cell{
		Name: cellTasks, Title: "create → assign → run → complete", Systems: []string{nameRabbitMQ, nameEmbedded},
		setup: time.Second, takes: 2*tasksFor + time.Second,
		open: func(_ context.Context, s *site, _ cell, _ int) (stage, error) { return &tasking{site: s}, nil },
	}
}

const (
	tasksFor = 2 * time.Second
	// tasksWindow are under way: fewer than a worker may have been handed.
	tasksWindow = 32
)

type tasking struct {
	site *site
	n    atomic.Int64
}

func (k *tasking) run(ctx context.Context, system string, _ int) (o outcome, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*tasksFor+2*patience)
	defer cancel()
	handed := make(chan string, 2*tasksWindow)
	worker, err := k.connect(ctx, system, func(n client.Notice) {
		if t, ok := n.(client.TaskAssigned); ok {
			handed <- t.ID
		}
	})
	if err != nil {
		return o, err
	}
	defer worker.Close(ctx) //nolint:errcheck // nothing of it is under way
	ended := make(chan struct{}, 2*tasksWindow)
	boss, err := k.connect(ctx, system, func(n client.Notice) {
		if p, ok := n.(client.Progressed); ok && client.TaskStatus(p.Progress.State).Over() {
			ended <- struct{}{}
		}
	})
	if err != nil {
		return o, err
	}
	defer boss.Close(ctx) //nolint:errcheck // as above

	ctx, fail := context.WithCancelCause(ctx)
	var hands sync.WaitGroup
	for range tasksWindow {
		hands.Go(func() {
			for {
				select {
				case id := <-handed:
					if err := work(ctx, worker, id); err != nil {
						fail(err)
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	o.Tasks, err = lives(ctx, func(ctx context.Context) error {
		if _, err := boss.CreateTask(ctx, client.TaskSpec{For: worker.Address(), Type: "measured", Payload: make([]byte, 256)}); err != nil {
			return err
		}
		select {
		case <-ended: // this one or another: none is left
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
	fail(nil)
	hands.Wait()
	return o, err
}

// work is what a worker does with a task that it was handed.
func work(ctx context.Context, c *client.Client, id string) error {
	if _, err := c.ClaimTask(ctx, id); err != nil {
		return err
	}
	_, err := c.CompleteTask(ctx, id)
	return err
}

// lives returns how many lives a second there are, tasksWindow at a time.
func lives(ctx context.Context, live func(context.Context) error) (float64, error) {
	var counted atomic.Int64
	var all sync.WaitGroup
	failed := make(chan error, tasksWindow)
	begun := time.Now()
	for range tasksWindow {
		all.Go(func() {
			for time.Since(begun) < tasksFor {
				if err := live(ctx); err != nil {
					failed <- err
					return
				}
				counted.Add(1)
			}
		})
	}
	all.Wait()
	close(failed)
	return float64(counted.Load()) / time.Since(begun).Seconds(), <-failed
}

func (k *tasking) connect(ctx context.Context, system string, notice func(client.Notice)) (*client.Client, error) {
	t := k.site.systems[system].(*server).target
	return client.Connect(ctx, client.Options{
		Addr: t.addr, Token: t.token, AllowPlaintext: true, OnNotice: notice,
		Identity: client.Agent(workspace, implementation, fmt.Sprintf("tasks-%d", k.n.Add(1))),
	})
}

func (k *tasking) close() error { return nil }

// tasked are the figures of the cell.
func (r *report) tasked() []row {
	var rows []row
	for _, x := range []struct{ name, system string }{{"gateway", nameRabbitMQ}, {"embedded", nameEmbedded}} {
		rows = append(rows, compare(x.name+", tasks created, assigned, run and completed", "/s",
			r.rounds(cellTasks, x.system, func(o *outcome) float64 { return o.Tasks }), "", nil))
	}
	return rows
}
