package router

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
)

var groupSteps = flag.Int("group.steps", 1500, "how many messages each schedule of TestT3Model sends")

// Delivery rule T3: whatever workers do, a message is given out without its flag
// once; to another worker only when the first has refused it or is leaving;
// and none is lost. The schedule runs on a clock of its own, so that pauses
// cost nothing; what happens at one time happens at once.
func TestT3Model(t *testing.T) {
	t.Parallel()
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	for i := range uint64(3) {
		t.Run(fmt.Sprint(seed+i), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { newCrew(t, seed+i).run(*groupSteps) })
			if t.Failed() {
				t.Logf("again with -model.seed=%d", seed+i)
			}
		})
	}
}

// crew is workers of one address, and what they have had.
type crew struct {
	t    *testing.T
	w    *world
	seed uint64

	mu      sync.Mutex
	given   map[string]int   // to how many workers
	fresh   map[string]int   // of these, not flagged
	holder  map[string]*hand // who has it and has neither refused it nor begun to leave
	over    map[string]bool  // acknowledged, or refused for good
	workers int
}

// hand is a worker's session.
type hand struct {
	box *delivery.Mailbox
	sub *Subscription
}

func newCrew(t *testing.T, seed uint64) *crew {
	w := setup(t, func(o *Options) { o.RingBytes, o.Logger = 4000, nil })
	return &crew{
		t: t, w: w, seed: seed,
		given: map[string]int{}, fresh: map[string]int{}, holder: map[string]*hand{}, over: map[string]bool{},
	}
}

func (c *crew) run(messages int) {
	stop := make(chan struct{})
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() { c.work(rand.New(rand.NewPCG(c.seed, uint64(i))), i > 0, stop) })
	}
	all.Go(func() { c.weather(rand.New(rand.NewPCG(c.seed, 100)), stop) })
	from, rng := c.w.agent("a", client(0)), rand.New(rand.NewPCG(c.seed, 101))
	for i := range messages {
		from.send(workersTopic, fmt.Sprintf("%d %s", i, make([]byte, rng.IntN(200))), "")
		if rng.IntN(10) == 0 {
			passes(rng, 200)
		}
	}
	deadline := time.Now().Add(5 * time.Minute)
	for !c.done(messages) && time.Now().Before(deadline) {
		<-time.After(time.Second)
	}
	close(stop)
	all.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	given := 0
	for text, n := range c.fresh {
		given += c.given[text]
		if n > 1 {
			c.t.Errorf("%.10q was given out %d times, %d times without a flag", text, c.given[text], n)
		}
	}
	ended := int(c.w.r.stats.GivenUp.Load())
	if missing := messages - len(c.over); missing > ended {
		c.t.Errorf("%d of %d messages are not done, and only %d were given up", missing, messages, ended)
	}
	c.t.Logf("%d messages, %d workers, given out %d times, given up %d, catch-ups %d",
		messages, c.workers, given, ended, c.w.r.stats.CatchUps.Load())
}

func (c *crew) done(messages int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.over)+int(c.w.r.stats.GivenUp.Load()) >= messages
}

// weather lets the log's connections fail, and the tail begin anew.
func (c *crew) weather(r *rand.Rand, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(r.IntN(5000)) * time.Millisecond):
		}
		switch r.IntN(3) {
		case 0:
			c.w.r.parts[0].tail.Reset()
		case 1:
			c.w.r.parts[0].tidyGroups(time.Now())
		}
	}
}

// work has one worker after the other, with pauses, if they leave at all.
func (c *crew) work(r *rand.Rand, leaves bool, stop <-chan struct{}) {
	for {
		c.mu.Lock()
		c.workers++
		name := fmt.Sprint(c.workers)
		c.mu.Unlock()
		h := c.hire(name, delivery.Options{Mode: delivery.Client, MaxUnacked: 1 + r.IntN(5), QueueBytes: 300 + r.IntN(1000)})
		over := c.shift(h, r, leaves, stop)
		c.leave(h)
		if over {
			return
		}
		passes(r, 300)
	}
}

func (c *crew) hire(name string, o delivery.Options) *hand {
	a, err := address.Task("w", "i", name)
	if err != nil {
		c.t.Error(err)
	}
	h := &hand{box: delivery.NewMailbox(o)}
	c.w.r.NewSender(&acl.Principal{Kind: acl.Task, Address: a, Workspace: "w"}, a.String(), Reads{}.Lease, h.box, func() {})
	h.sub, err = c.w.r.Subscribe(context.Background(), h.box, Reads{Workers: workersTopic, Identity: a.String()})
	if err != nil {
		c.t.Error(err)
	}
	return h
}

// leave ends a worker's session, while what it said last is still on its way.
func (c *crew) leave(h *hand) {
	c.mu.Lock()
	for text, who := range c.holder {
		if who == h {
			delete(c.holder, text)
		}
	}
	c.mu.Unlock()
	h.sub.Leave(context.Background(), Leaving{})
}

// shift is a worker's life. It reports whether stop has ended it.
func (c *crew) shift(h *hand, r *rand.Rand, leaves bool, stop <-chan struct{}) (over bool) {
	var batch delivery.Batch
	var has []*aetherv1.IncomingMessage
	until := time.After(time.Duration(r.IntN(3000)) * time.Millisecond)
	if !leaves {
		until = nil
	}
	for {
		if !h.box.Take(&batch) {
			select {
			case <-h.box.Wake():
				continue
			case <-stop:
				return true
			case <-until:
				c.late(h, has)
				return false
			case <-time.After(time.Duration(1+r.IntN(50)) * time.Millisecond):
			}
		}
		for _, in := range batch.Feed {
			c.w.r.Feed(in)
		}
		for _, f := range batch.Frames {
			if m := c.read(f); m != nil {
				c.got(h, m)
				has = append(has, m)
			}
		}
		if leaves && r.IntN(40) == 0 {
			c.late(h, has)
			return false
		}
		has = c.answer(h, r, has, leaves)
		passes(r, 20) // it works
	}
}

// passes lets up to so many milliseconds of the schedule's clock pass.
func passes(r *rand.Rand, ms int) { <-time.After(time.Duration(r.IntN(ms)) * time.Millisecond) }

func (c *crew) read(frame []byte) *aetherv1.IncomingMessage {
	var d aetherv1.DownstreamMessage
	if err := proto.Unmarshal(frame, &d); err != nil {
		c.t.Error(err)
	}
	return d.GetMsg()
}

func (c *crew) got(h *hand, m *aetherv1.IncomingMessage) {
	text := string(m.GetPayload())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.given[text]++
	if !m.GetRedelivered() {
		c.fresh[text]++
	}
	if c.holder[text] != nil {
		c.t.Errorf("%.10q is given to a second worker, and the first still has it", text)
	}
	c.holder[text] = h
}

// answer acknowledges or refuses some of what a worker has.
func (c *crew) answer(h *hand, r *rand.Rand, has []*aetherv1.IncomingMessage, moody bool) (left []*aetherv1.IncomingMessage) {
	for _, m := range has {
		switch x := r.IntN(12); {
		case x == 0 && moody:
			c.refuse(h, m)
		case x < 4:
			left = append(left, m)
		default:
			c.finish(h, m)
		}
	}
	return left
}

func (c *crew) finish(h *hand, m *aetherv1.IncomingMessage) {
	text := string(m.GetPayload())
	c.mu.Lock()
	delete(c.holder, text)
	c.over[text] = true
	c.mu.Unlock()
	if err := h.box.AckOne(m.GetDeliveryId()); err != nil {
		c.t.Error(err)
	}
}

func (c *crew) refuse(h *hand, m *aetherv1.IncomingMessage) {
	c.mu.Lock()
	if text := string(m.GetPayload()); c.holder[text] == h {
		delete(c.holder, text)
	}
	c.mu.Unlock()
	if n, err := h.box.Nack(m.GetDeliveryId(), true, ""); err == nil {
		c.w.r.Nacked(n)
	}
}

// late refuses all that a worker has, while its session ends.
func (c *crew) late(h *hand, has []*aetherv1.IncomingMessage) {
	for _, m := range has {
		go c.refuse(h, m)
	}
}
