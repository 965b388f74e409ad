package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/test/chaos/check"
)

// What is handed out in a round: jobs, to a pool of workers that now and then
// leave as if killed, and errands, to agents that are started for them.
const (
	jobs    = "jobs"
	lazy    = "lazy" // the implementation that orchestrators start
	profile = "process"
)

// creator creates tasks at a steady rate, and cancels some.
type creator struct {
	tb     testing.TB
	rec    *recorder
	name   string
	client *client.Client
	pace   time.Duration
	rng    *rand.Rand
}

// run creates tasks until stop is closed.
func (c *creator) run(ctx context.Context, stop <-chan struct{}) {
	var cancels sync.WaitGroup
	defer cancels.Wait()
	for i := 1; ; i++ {
		pause := time.NewTimer(c.pace/2 + time.Duration(c.rng.Int64N(int64(c.pace))))
		select {
		case <-stop:
			pause.Stop()
			return
		case <-ctx.Done():
			pause.Stop()
			return
		case <-pause.C:
		}
		s := client.TaskSpec{
			Type: "chaos", Workspace: ws, Key: fmt.Sprintf("%s-%d", c.name, i), Payload: []byte("work"), Attempts: 3, Pause: 200 * time.Millisecond,
		}
		switch n := c.rng.IntN(10); {
		case n < 6:
			s.Pool = jobs
		case n < 8:
			s.For = "tu::" + ws + "::" + jobs + "::w0"
		default:
			s.For = fmt.Sprintf("ag::%s::%s::errand%d", ws, lazy, c.rng.IntN(2))
		}
		id, ok := c.create(ctx, s)
		if !ok {
			continue
		}
		c.rec.note(check.Event{Kind: check.Created, Who: c.name, Task: id, Most: s.Attempts, Text: s.Pool + s.For})
		if c.rng.IntN(10) == 0 {
			after := time.Duration(c.rng.Int64N(int64(500 * time.Millisecond)))
			cancels.Go(func() {
				if wait(ctx, after) {
					limited, cancel := context.WithTimeout(ctx, sendTimeout)
					defer cancel()
					_, _ = c.client.CancelTask(limited, id, "it is not needed any more") // it may have ended
				}
			})
		}
	}
}

// create creates a task, and repeats that until it is known to be there.
func (c *creator) create(ctx context.Context, s client.TaskSpec) (id string, ok bool) {
	for deadline := time.Now().Add(givesUp); time.Now().Before(deadline); {
		limited, cancel := context.WithTimeout(ctx, sendTimeout)
		id, err := c.client.CreateTask(limited, s)
		cancel()
		if err == nil {
			return id, true
		}
		switch client.CodeOf(err) {
		case client.CodeInvalidArgument, client.CodePermissionDenied, client.CodeNotFound:
			c.tb.Errorf("%s cannot create a task: %v", c.name, err)
			return "", false
		}
		if !wait(ctx, 200*time.Millisecond) {
			return "", false
		}
	}
	c.tb.Errorf("%s could not create a task for %v", c.name, givesUp)
	return "", false
}

// worker does the tasks that a client is handed. Its memory is that of a
// process: another one after it was killed.
type worker struct {
	rec      *recorder
	identity string
	settle   <-chan struct{} // closed: nothing fails any more

	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu     sync.Mutex
	client *client.Client
	busy   map[string]bool // tasks in hand; true: it was handed once more meanwhile
	last   time.Time       // when there was something to do
	closed bool
}

func newWorker(ctx context.Context, rec *recorder, identity string, settle <-chan struct{}) *worker {
	w := &worker{rec: rec, identity: identity, settle: settle, busy: map[string]bool{}, last: time.Now()}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w
}

// use gives it its client; what it was handed before waits for that.
func (w *worker) use(c *client.Client) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.client = c
}

func (w *worker) touch() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = time.Now()
}

// idle is for how long there was nothing to do.
func (w *worker) idle() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.busy) > 0 {
		return 0
	}
	return time.Since(w.last)
}

// take begins to work on a task.
func (w *worker) take(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = time.Now()
	if _, has := w.busy[id]; has || w.closed {
		w.busy[id] = true
		return
	}
	w.busy[id] = false
	w.all.Go(func() {
		for again := true; again && w.ctx.Err() == nil; {
			w.do(id)
			w.mu.Lock()
			if again = w.busy[id]; again {
				w.busy[id] = false
			} else {
				delete(w.busy, id)
			}
			w.last = time.Now()
			w.mu.Unlock()
		}
	})
}

// end stops the work at once, as the end of a process does.
func (w *worker) end() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cancel()
	w.all.Wait()
}

func (w *worker) settled() bool {
	select {
	case <-w.settle:
		return true
	default:
		return false
	}
}

// hands is the client, when there is one.
func (w *worker) hands() *client.Client {
	for {
		w.mu.Lock()
		c := w.client
		w.mu.Unlock()
		if c != nil || !wait(w.ctx, 20*time.Millisecond) {
			return c
		}
	}
}

// do does a task: it says that it is at it, reports, and completes or fails it.
func (w *worker) do(id string) {
	c := w.hands()
	if c == nil {
		return
	}
	attempt, ok := w.begin(c, id)
	if !ok {
		return
	}
	w.rec.note(check.Event{Kind: check.Began, Who: w.identity, Task: id, Attempt: attempt})
	_ = c.Report(w.ctx, client.Progress{TaskID: id, State: "working", Completion: rand.Float64()})
	if !wait(w.ctx, time.Duration(rand.Int64N(int64(300*time.Millisecond)))) {
		return
	}
	fails := rand.IntN(10) == 0 && !w.settled()
	w.insist(func(ctx context.Context) error {
		if fails {
			_, err := c.FailTask(ctx, id, "it went wrong")
			return err
		}
		i, err := c.CompleteTask(ctx, id)
		if err == nil {
			w.rec.note(check.Event{Kind: check.Ended, Who: w.identity, Task: id, Attempt: i.Attempt})
		}
		return err
	})
}

// begin claims a task; it reports false if it is somebody else's.
func (w *worker) begin(c *client.Client, id string) (attempt int, ok bool) {
	err := w.insist(func(ctx context.Context) error {
		i, err := c.ClaimTask(ctx, id)
		if err == nil {
			attempt = i.Attempt
		}
		return err
	})
	if err == nil {
		return attempt, true
	}
	// Who was started for a task, or has come back to it, has it without a claim.
	err = w.insist(func(ctx context.Context) error {
		i, err := c.Task(ctx, id)
		if err == nil {
			attempt, ok = i.Attempt, i.Worker == w.identity && i.Status == client.TaskRunning
		}
		return err
	})
	return attempt, ok && err == nil
}

// insist repeats what has failed for a reason that passes.
func (w *worker) insist(f func(ctx context.Context) error) (err error) {
	for deadline := time.Now().Add(givesUp); time.Now().Before(deadline); {
		limited, cancel := context.WithTimeout(w.ctx, sendTimeout)
		err = f(limited)
		cancel()
		switch client.CodeOf(err) {
		case client.CodeInvalidArgument, client.CodePermissionDenied, client.CodeNotFound:
			return err
		}
		if err == nil || !wait(w.ctx, 200*time.Millisecond) {
			return err
		}
	}
	return err
}

// remember takes up what the gateway says that this worker is at: it was killed
// meanwhile.
func (w *worker) remember(c *client.Client) {
	_ = w.insist(func(ctx context.Context) error {
		list, _, err := c.Tasks(ctx, client.TaskFilter{Workspace: ws, Statuses: []client.TaskStatus{client.TaskRunning}})
		for _, i := range list {
			if i.Worker == w.identity {
				w.take(i.ID)
			}
		}
		return err
	})
}

// pooled is a worker of the pool, one process after the other.
type pooled struct {
	check.Receiver
	*receiver
	restless bool
}

func newPooled(w *workload, index int) *pooled {
	name := fmt.Sprintf("w%d", index)
	k := kind{
		identity: client.UniqueTask(ws, jobs, name),
		claims:   auth.Claims{Kind: auth.KindTask, Workspaces: []string{ws}, Impl: jobs, Spec: "*"},
	}
	r := w.newReceiver("jobs-"+name, k)
	r.wire.flighty = index == 1
	return &pooled{Receiver: r.Receiver, receiver: r, restless: index != 1}
}

// run implements [runner].
func (p *pooled) run(ctx context.Context, settle, stop <-chan struct{}, connected func()) error {
	for {
		w := newWorker(ctx, p.wire.rec, p.Exclusive, settle)
		o := p.options
		o.OnNotice = func(n client.Notice) {
			if a, ok := n.(client.TaskAssigned); ok {
				w.take(a.ID)
			}
		}
		c, err := p.connectWith(ctx, o)
		if err != nil {
			w.end()
			return err
		}
		connected()
		w.use(c)
		w.all.Go(func() { w.remember(c) })
		stay := time.NewTimer(2*time.Second + time.Duration(p.rng.Int64N(int64(8*time.Second))))
		leaves := stay.C
		if !p.restless || w.settled() {
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
		killed := again && p.rng.IntN(2) == 0
		if !killed {
			w.end()
		}
		closeClient(c, killed)
		w.end()
		if !again || !wait(ctx, time.Duration(p.rng.Int64N(int64(3*time.Second)))) {
			return nil
		}
	}
}

// closeClient ends a client in order, or as if its process was killed.
func closeClient(c *client.Client, killed bool) {
	limit := 5 * time.Second
	if killed {
		limit = 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = c.Close(ctx)
}
