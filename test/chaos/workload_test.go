package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/client"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/test/chaos/check"
)

// ws is where everybody works, and away the workspace that must see nothing of
// it.
const (
	ws   = "town"
	away = "away"
)

// workload is all clients of a round.
type workload struct {
	tb    testing.TB
	rec   *recorder
	nodes []*node
	seed  uint64
	key   auth.Key
	pace  time.Duration

	receivers []runner
	names     []string
	senders   []*sender
	office    *office // nil: no tasks
	ctx       context.Context
	cancel    context.CancelFunc
	settle    chan struct{} // closed: nobody leaves any more
	stop      chan struct{} // closed: receivers end
	sent      chan struct{} // closed: senders end
	sending   sync.WaitGroup
	reading   sync.WaitGroup
}

// runner is a receiver of either kind.
type runner interface {
	run(ctx context.Context, settle, stop <-chan struct{}, connected func()) error
}

func newWorkload(tb testing.TB, rec *recorder, nodes []*node, seed uint64, pace time.Duration) *workload {
	tb.Helper()
	w := &workload{
		tb: tb, rec: rec, nodes: nodes, seed: seed, pace: pace,
		key:    check1[auth.Key](tb)(auth.NewKey("key", []byte(secret))),
		settle: make(chan struct{}), stop: make(chan struct{}), sent: make(chan struct{}),
	}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.populate()
	return w
}

func (w *workload) token(c auth.Claims) string {
	w.tb.Helper()
	c.ExpiresAt = time.Now().Add(24 * time.Hour)
	c.Issuer, c.Audience = "aether", []string{"aether"}
	return check1[string](w.tb)(auth.Mint(w.key, c))
}

func (w *workload) rng(name string) *rand.Rand { return rand.New(rand.NewPCG(w.seed, hash(name)+1)) }

// kind is what a principal is made of.
type kind struct {
	identity  client.Identity
	claims    auth.Claims
	workspace string // of a user
	shared    []string
}

func agent(workspace, spec string) kind {
	return kind{
		identity: client.Agent(workspace, "i", spec), shared: []string{"ga::" + workspace},
		claims: auth.Claims{Kind: auth.KindAgent, Workspaces: []string{workspace}, Impl: "i", Spec: "*"},
	}
}

func user(workspace, name string) kind {
	return kind{
		identity: client.User(name, "w"), workspace: workspace, shared: []string{"gu::" + workspace, "uw::" + name + "::" + workspace},
		claims: auth.Claims{Kind: auth.KindUser, User: name, Workspaces: []string{workspace}},
	}
}

func uniqueTask(spec string) kind {
	return kind{
		identity: client.UniqueTask(ws, "i", spec),
		claims:   auth.Claims{Kind: auth.KindTask, Workspaces: []string{ws}, Impl: "i", Spec: "*"},
	}
}

func (w *workload) newReceiver(name string, k kind) *receiver {
	w.tb.Helper()
	address := k.identity.Address()
	r := &receiver{
		Receiver: check.Receiver{Name: name, Exclusive: address, Shared: k.shared, Own: address, Remembers: true, Class: "exclusive"},
		wire:     newWire(w.rec, w.nodes, name, address, w.seed), rng: w.rng(name), whims: w.rng(name + " works"), done: map[check.Message]bool{},
		options: client.Options{Identity: k.identity, Workspace: k.workspace, Token: w.token(k.claims), Name: name},
	}
	return r
}

func (w *workload) receive(name string, r runner, c check.Receiver) {
	w.names = append(w.names, name)
	w.receivers = append(w.receivers, r)
	w.rec.receivers = append(w.rec.receivers, c)
}

// populate makes the clients.
func (w *workload) populate() {
	w.tb.Helper()
	add := func(name string, k kind, change func(*receiver)) {
		w.tb.Helper()
		r := w.newReceiver(name, k)
		if change != nil {
			change(r)
		}
		w.receive(name, r, r.Receiver)
	}
	add("steady", agent(ws, "steady"), nil)
	add("trusting", agent(ws, "trusting"), func(r *receiver) { r.trusting, r.options.MaxUnacked = true, 20 })
	add("restless", agent(ws, "restless"), func(r *receiver) { r.restless, r.slow = true, 200*time.Millisecond })
	add("small", uniqueTask("small"), func(r *receiver) { r.options.MaxUnacked, r.slow = 4, 50*time.Millisecond })
	add("sleeper", agent(ws, "sleeper"), func(r *receiver) { r.restless, r.away = true, 30*time.Second })
	add("flighty", agent(ws, "flighty"), func(r *receiver) { r.wire.flighty = true })
	add("user", user(ws, "ute"), func(r *receiver) { r.restless = true })
	add("stranger", agent(away, "stranger"), nil)
	add("engine", kind{
		identity: client.WorkflowEngine("e"),
		claims:   auth.Claims{Kind: auth.KindWorkflowEngine, Workspaces: []string{ws}, Spec: "*"},
	}, func(r *receiver) { r.Exclusive, r.Own, r.Class = "event::"+ws, "", "events" })
	for i := range 4 {
		name := fmt.Sprintf("worker%d", i)
		add(name, kind{
			identity: client.Task(ws, "pool"),
			claims:   auth.Claims{Kind: auth.KindTask, Workspaces: []string{ws}, Impl: "pool"},
		}, func(r *receiver) {
			r.Exclusive, r.Own, r.Workers = "", "", "tb::"+ws+"::pool"
			r.restless, r.wire.flighty = i == 0, i == 1
			r.options.MaxUnacked = 16
		})
	}
	for _, name := range []string{"auto", "auto-restless", "doubting"} {
		k := agent(ws, name)
		address := k.identity.Address()
		r := &autoReader{
			Receiver: check.Receiver{Name: name, Exclusive: address, Shared: k.shared, Own: address, Class: "exclusive AUTO"},
			wire:     newWire(w.rec, w.nodes, name, address, w.seed), token: w.token(k.claims), rng: w.rng(name),
			identity: &aetherv1.AgentIdentity{Workspace: ws, Implementation: "i", Specifier: name},
			restless: name == "auto-restless", doubting: name == "doubting",
		}
		w.receive(name, r, r.Receiver)
	}

	town := []string{
		"ag::" + ws + "::i::steady", "ag::" + ws + "::i::trusting", "ag::" + ws + "::i::restless", "tu::" + ws + "::i::small",
		"us::ute::w", "ag::" + ws + "::i::auto", "ag::" + ws + "::i::auto-restless", "ag::" + ws + "::i::doubting", "ag::" + ws + "::i::sleeper", "ag::" + ws + "::i::flighty",
		"tb::" + ws + "::pool", "ga::" + ws, "gu::" + ws, "uw::ute::" + ws,
	}
	events := append([]string{"event::" + ws, "ag::" + ws + "::i::flighty"}, town[:4]...)
	w.send("patient", agent(ws, "patient"), patient, town)
	w.send("hasty", agent(ws, "hasty"), hasty, town)
	w.send("hasty2", uniqueTask("hasty2"), hasty, events)
	w.send("careless", agent(ws, "careless"), careless, events)
	w.send("customer", user(ws, "customer"), hasty, town[:12])
	w.send("mover", agent(ws, "mover"), patient, town)
	w.send("foreigner", agent(away, "foreigner"), patient, []string{"ag::" + away + "::i::stranger", "ga::" + away})
}

// send adds a sender, which also receives what its kind does.
func (w *workload) send(name string, k kind, h habit, to []string) {
	w.tb.Helper()
	r := w.newReceiver(name, k)
	r.wire.flighty = name == "hasty2" || name == "mover"
	w.rec.receivers = append(w.rec.receivers, r.Receiver)
	limited, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	c, err := r.connect(limited)
	if err != nil {
		w.tb.Fatalf("%s cannot connect: %v", name, err)
	}
	w.senders = append(w.senders, &sender{
		rec: w.rec, client: c, source: k.identity.Address(), to: to, habit: h, pace: w.pace, rng: w.rng(name + " sends"),
	})
}

// start lets all work, the senders when the receivers are there: a user can be
// addressed when it has been there once.
func (w *workload) start() {
	w.tb.Helper()
	var ready sync.WaitGroup
	for i, r := range w.receivers {
		ready.Add(1)
		w.reading.Go(func() {
			once := sync.OnceFunc(ready.Done)
			defer once()
			if err := r.run(w.ctx, w.settle, w.stop, once); err != nil && w.ctx.Err() == nil {
				w.tb.Errorf("%s ended: %v", w.names[i], err)
			}
		})
	}
	ready.Wait()
	for _, s := range w.senders {
		w.sending.Go(func() { s.run(w.ctx, w.sent) })
	}
	if w.office != nil {
		for _, c := range w.office.creators {
			w.sending.Go(func() { c.run(w.ctx, w.sent) })
		}
	}
}

// finish lets the senders end and waits until all that was promised has come,
// or for as long as it may take.
func (w *workload) finish(limit time.Duration) {
	close(w.sent)
	w.sending.Wait()
	close(w.settle)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	calm, round := 0, 0
	for deadline := time.Now().Add(limit); time.Now().Before(deadline) && calm < 3; <-tick.C {
		round++
		if w.office.settled(round) && drained(check.Judge(w.rec.history())) {
			calm++ // what comes twice may come a little later
		} else {
			calm = 0
		}
	}
	h := w.rec.history()
	close(w.stop)
	w.reading.Wait()
	w.office.end()
	for _, s := range w.senders {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_ = s.client.Close(ctx)
		cancel()
	}
	w.cancel()
	w.rec.mu.Lock()
	w.rec.events = w.rec.events[:len(h.Events)] // the end is no part of it
	w.rec.mu.Unlock()
}

func drained(r *check.Result) bool {
	for _, v := range r.Violations {
		switch v.Rule {
		case check.Lost, check.Unfinished, check.Untold:
			return false
		}
	}
	return true
}
