package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/test/chaos/check"
)

// starter is an orchestrator whose workers run in this process. It is killed now
// and then; its workers live on.
type starter struct {
	*receiver
	lazy     map[string]*receiver // whom it can start, by identity
	restless bool
	workers  *sync.WaitGroup
}

func newStarter(w *workload, index int, lazy map[string]*receiver, workers *sync.WaitGroup) *starter {
	name := fmt.Sprintf("starter%d", index)
	r := w.newReceiver(name, kind{
		identity: client.Orchestrator("local", name, profile),
		claims:   auth.Claims{Kind: auth.KindOrchestrator, Workspaces: []string{ws}, Impl: "local", Spec: "*"},
	})
	r.Exclusive, r.Own = "", ""
	r.wire.flighty = index == 1
	return &starter{receiver: r, lazy: lazy, restless: index == 0, workers: workers}
}

// run implements [runner].
func (s *starter) run(ctx context.Context, settle, stop <-chan struct{}, connected func()) error {
	for {
		var mu sync.Mutex
		var self *client.Client
		o := s.options
		o.OnNotice = func(n client.Notice) {
			a, ok := n.(client.Assigned)
			if !ok {
				return
			}
			s.wire.rec.note(check.Event{Kind: check.Handed, Who: s.Name, Task: a.Assignment.TaskID, Text: a.Assignment.Identity})
			mu.Lock()
			c := self
			mu.Unlock()
			s.start(ctx, settle, stop, c, a.Assignment)
		}
		c, err := s.connectWith(ctx, o)
		if err != nil {
			return err
		}
		mu.Lock()
		self = c
		mu.Unlock()
		connected()
		stay := time.NewTimer(3*time.Second + time.Duration(s.rng.Int64N(int64(9*time.Second))))
		leaves := stay.C
		if !s.restless {
			leaves = nil
		}
		again := true
		select {
		case <-leaves:
		case <-c.Done():
		case <-stop:
			again = false
		case <-settle:
			select {
			case <-c.Done():
			case <-stop:
				again = false
			}
		}
		stay.Stop()
		closeClient(c, again && s.rng.IntN(3) > 0)
		if !again || !wait(ctx, time.Duration(s.rng.Int64N(int64(2*time.Second)))) {
			return nil
		}
	}
}

// start starts a worker, or not: it refuses now and then, and forgets.
func (s *starter) start(ctx context.Context, settle, stop <-chan struct{}, self *client.Client, a *client.Assignment) {
	calm := false
	select {
	case <-settle:
		calm = true
	default:
	}
	r := s.lazy[a.Identity]
	switch n := rand.IntN(20); {
	case r == nil, !calm && n == 0:
		return
	case !calm && n == 1 && self != nil:
		limited, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_ = self.RejectStart(limited, a, "there is no room")
		return
	}
	s.workers.Go(func() { serve(ctx, settle, stop, r, a) })
}

// serve is the process that was started: it reads its mail, does what it is
// handed, and leaves when there is nothing to do any more.
func serve(ctx context.Context, settle, stop <-chan struct{}, r *receiver, a *client.Assignment) {
	w := newWorker(ctx, r.wire.rec, a.Identity, settle)
	defer w.end()
	if !w.settled() && !wait(ctx, time.Duration(rand.Int64N(int64(300*time.Millisecond)))) {
		return
	}
	o := r.options
	o.Token, o.TaskToken = "", a.Token
	o.WaitForIdentity = 3 * time.Second
	o.OnNotice = func(n client.Notice) {
		if t, ok := n.(client.TaskAssigned); ok {
			w.take(t.ID)
		}
	}
	o.Handler = func(ctx context.Context, m *client.Message) error {
		w.touch()
		return r.handle(ctx, m)
	}
	c, err := r.connectWith(ctx, o)
	if err != nil {
		return // it was too late, or cannot come: the start is tried again
	}
	// Nobody takes its place soon, which would tell that its session is over.
	defer func() { r.wire.rec.note(check.Event{Kind: check.Left, Who: r.Name, Session: c.Session().ID}) }()
	w.use(c)
	w.touch()
	w.all.Go(func() { w.remember(c) })
	end := time.Now().Add(time.Second + time.Duration(rand.Int64N(int64(4*time.Second))))
	killed := rand.IntN(4) == 0
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-c.Done():
			return
		case <-stop:
			closeClient(c, true)
			return
		case <-tick.C:
		}
		switch calm := w.settled(); {
		case killed && !calm && time.Now().After(end):
			closeClient(c, true)
			return
		case w.idle() > time.Second:
			w.end()
			closeClient(c, false)
			return
		}
	}
}
