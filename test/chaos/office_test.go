package chaos

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
	"github.com/aether-gateway/gateway/test/chaos/check"
)

// office is the part of a workload that creates tasks, does them, and starts who
// is not there, with an operator who looks on.
type office struct {
	w        *workload
	creators []*creator
	caller   *sender // writes to who is not there
	workers  sync.WaitGroup
	token    string
	seen     map[string]string // status and attempt that were noted, by task
}

// employ adds an office to a workload that has not started.
func (w *workload) employ() {
	w.tb.Helper()
	o := &office{w: w, seen: map[string]string{}, token: w.token(auth.Claims{Kind: auth.KindOperator, Subject: "looker"})}
	w.office = o
	must(w.tb, o.ask(func(ctx context.Context, a adminv1.AdminClient) error {
		_, err := a.RegisterImplementation(ctx, &adminv1.RegisterImplementationRequest{Implementation: &adminv1.Implementation{Implementation: lazy, Profile: profile}})
		return err
	}))
	people, to := map[string]*receiver{}, []string(nil)
	for _, spec := range []string{"mail0", "mail1", "mail2", "errand0", "errand1"} {
		k := agent(ws, spec)
		k.identity = client.Agent(ws, lazy, spec)
		r := w.newReceiver("lazy-"+spec, k)
		r.Class = "started"
		w.rec.receivers = append(w.rec.receivers, r.Receiver)
		people[r.Exclusive] = r
		if spec[0] == 'm' {
			to = append(to, r.Exclusive)
		}
	}
	for i := range 2 {
		s := newStarter(w, i, people, &o.workers)
		w.receive(s.Name, s, s.Receiver)
	}
	for i := range 3 {
		p := newPooled(w, i)
		w.receive(p.Name, p, p.Receiver)
	}
	w.send("caller", agent(ws, "caller"), patient, to)
	o.caller = w.senders[len(w.senders)-1]
	o.caller.pace = 1200 * time.Millisecond
	for i := range 2 {
		o.hire(i)
	}
}

// hire adds a creator of tasks.
func (o *office) hire(index int) {
	w := o.w
	w.tb.Helper()
	name := fmt.Sprintf("boss%d", index)
	r := w.newReceiver(name, agent(ws, name))
	r.wire.flighty = index == 1
	r.Shared = append(r.Shared, "pg::"+ws)
	w.rec.receivers = append(w.rec.receivers, r.Receiver)
	limited, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	c, err := r.connect(limited)
	if err != nil {
		w.tb.Fatalf("%s cannot connect: %v", name, err)
	}
	o.creators = append(o.creators, &creator{tb: w.tb, rec: w.rec, name: name, client: c, pace: 300 * time.Millisecond, rng: w.rng(name + " creates")})
}

// ask asks a gateway for something, another one after each failure.
func (o *office) ask(f func(ctx context.Context, a adminv1.AdminClient) error) (err error) {
	for try := range 3 * len(o.w.nodes) {
		n := o.w.nodes[try%len(o.w.nodes)]
		if err = o.askAt(local(n.grpc), f); err == nil || !wait(o.w.ctx, 100*time.Millisecond) {
			return err
		}
	}
	return err
}

func (o *office) askAt(addr string, f func(ctx context.Context, a adminv1.AdminClient) error) error {
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(o.w.ctx, 10*time.Second)
	defer cancel()
	err = f(metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+o.token), adminv1.NewAdminClient(conn))
	return errors.Join(err, conn.Close())
}

// look notes how tasks stand; it reports whether all have ended.
func (o *office) look() (ended bool, err error) {
	ended = true
	err = o.ask(func(ctx context.Context, a adminv1.AdminClient) error {
		for page := ""; ; {
			list, err := a.ListTasks(ctx, &adminv1.ListTasksRequest{Workspace: ws, PageToken: page})
			if err != nil {
				return err
			}
			for _, t := range list.GetTasks() {
				ended = o.note(t) && ended
			}
			if page = list.GetNextPageToken(); page == "" {
				return nil
			}
		}
	})
	return ended, err
}

func (o *office) note(t *adminv1.Task) (ended bool) {
	since := func(unix int64) time.Duration {
		if unix == 0 {
			return 0
		}
		return time.Unix(unix, 0).Sub(o.w.rec.start)
	}
	ended = t.GetCompletedAt() != 0
	stands := fmt.Sprint(t.GetStatus(), t.GetAttempt())
	if o.seen[t.GetTaskId()] == stands {
		return ended
	}
	o.seen[t.GetTaskId()] = stands
	e := check.Event{
		Kind: check.Is, Task: t.GetTaskId(), Status: t.GetStatus(), Attempt: int(t.GetAttempt()), Most: int(t.GetMaxAttempts()),
		Since: since(t.GetCreatedAt()), Until: since(t.GetCompletedAt()),
	}
	if t.GetTaskType() != "chaos" {
		e.Text = t.GetTargetTopic()
	}
	o.w.rec.note(e)
	return ended
}

// settled reports whether all tasks have ended, and writes to those whose mail
// waits: who has been started in vain is not, for old mail alone.
func (o *office) settled(round int) bool {
	if o == nil {
		return true
	}
	if round%12 == 6 {
		for _, to := range o.caller.to {
			o.caller.seq[to]++
			o.caller.insist(o.w.ctx, check.Message{Sender: o.caller.source, To: to, Seq: o.caller.seq[to]})
		}
	}
	ended, err := o.look()
	if err != nil {
		o.w.tb.Logf("an operator cannot see the tasks: %v", err)
	}
	return ended && err == nil
}

// end ends the creators when all has been judged.
func (o *office) end() {
	if o == nil {
		return
	}
	o.workers.Wait()
	for _, c := range o.creators {
		closeClient(c.client, false)
	}
}
