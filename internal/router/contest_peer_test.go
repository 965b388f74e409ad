package router

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/redis"
	"github.com/aether-gateway/gateway/internal/presence/redis/redistest"
	"github.com/aether-gateway/gateway/internal/streams/streamstest"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// peers are gateways on one log and one Redis.
type peers struct {
	t      *testing.T
	server *testservices.RedisServer
	raw    *goredis.Client
	list   []*gateway
}

type gateway struct {
	*world
	presence *redis.Presence
	link     *faultproxy.Proxy // to Redis
}

const tasks = "tb::w::i"

// together starts gateways.
func together(t *testing.T, n int) *peers {
	t.Helper()
	ps := &peers{t: t, server: redistest.Aged(t)}
	ps.raw = goredis.NewClient(&goredis.Options{Addr: ps.server.Addr()})
	t.Cleanup(func() { ps.raw.Close() })
	log, rows := streamstest.NewMemory(1), newMemoryStore()
	for i := range n {
		link := faultproxy.New(t, ps.server.Addr())
		boot := NewBoot()
		p, err := redis.New(redis.Options{URL: "redis://" + link.Addr() + "/0", Instance: fmt.Sprint("gw", i), ID: boot.String()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = p.Close(ctx)
		})
		if err := p.Start(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		g := &gateway{&world{t: t, log: log, store: rows}, p, link}
		g.start(func(o *Options) { o.Presence, o.Boot = p, boot })
		ps.list = append(ps.list, g)
	}
	ps.noGrace()
	return ps
}

// noGrace ends the time in which gateways of a new Redis only tell what they
// hold.
func (ps *peers) noGrace() {
	ps.t.Helper()
	if err := ps.raw.HSet(ps.t.Context(), "{aether}:0:inc", "until", 0).Err(); err != nil {
		ps.t.Fatal(err)
	}
}

// entered waits until the gateway claims messages.
func (g *gateway) entered() {
	g.t.Helper()
	g.eventually(func() bool {
		open := false
		g.contest(func(c *contest) { open = c.open })
		return open
	})
}

// contest looks at the gateway's group, if there is one.
func (g *gateway) contest(look func(*contest)) {
	p := g.r.parts[0]
	p.mu.Lock()
	t := p.targets[tasks]
	p.mu.Unlock()
	if t == nil {
		return
	}
	t.workers.mu.Lock()
	defer t.workers.mu.Unlock()
	look(t.workers.contest)
}

// open returns how many claims are open in Redis.
func (ps *peers) open() int64 {
	ps.t.Helper()
	n, err := ps.raw.HLen(ps.t.Context(), "{aether}:0:tb:o:"+tasks).Result()
	if err != nil {
		ps.t.Fatal(err)
	}
	return n
}

// tally is what workers were given.
type tally struct {
	mu    sync.Mutex
	times map[string]int  // delivered
	clean map[string]int  // delivered and not flagged
	acked map[string]int  // of these, acknowledged
	by    map[*labour]int // by worker
}

func newTally() *tally {
	return &tally{times: map[string]int{}, clean: map[string]int{}, acked: map[string]int{}, by: map[*labour]int{}}
}

func (y *tally) count() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.acked)
}

// crew hires a worker on each gateway, which all claim messages then.
func (ps *peers) crew(window int) *tally {
	ps.t.Helper()
	y := newTally()
	for i, g := range ps.list {
		g.hire(fmt.Sprint(i), window, y, nil)
		g.entered()
	}
	return y
}

// labour is a worker with a goroutine, which acknowledges what it gets.
type labour struct {
	g    *gateway
	box  *delivery.Mailbox
	sub  *Subscription
	stop chan struct{}
	done chan struct{}
	once sync.Once
}

// hire starts a worker. work, if set, is called for each delivery and says
// whether it is acknowledged.
func (g *gateway) hire(id string, window int, y *tally, work func(m *aetherv1.IncomingMessage) bool) *labour {
	g.t.Helper()
	a, err := address.Task("w", "i", id)
	if err != nil {
		g.t.Fatal(err)
	}
	l := &labour{g: g, box: delivery.NewMailbox(client(window)), stop: make(chan struct{}), done: make(chan struct{})}
	g.r.NewSender(&acl.Principal{Kind: acl.Task, Address: a, Workspace: "w"}, a.String(), presence.Lease{}, l.box, func() {})
	l.sub, err = g.r.Subscribe(context.Background(), l.box, Reads{Workers: tasks, Identity: a.String(), Lease: presence.Lease{Epoch: 1}})
	if err != nil {
		g.t.Fatal(err)
	}
	go l.run(y, work)
	g.t.Cleanup(l.leave)
	return l
}

func (l *labour) leave() {
	l.once.Do(func() {
		close(l.stop)
		<-l.done
		l.sub.Leave(context.Background(), Leaving{})
	})
}

func (l *labour) run(y *tally, work func(m *aetherv1.IncomingMessage) bool) {
	defer close(l.done)
	var batch delivery.Batch
	for {
		if !l.box.Take(&batch) {
			select {
			case <-l.box.Wake():
				continue
			case <-l.stop:
				return
			}
		}
		for _, in := range batch.Feed {
			l.g.r.Feed(in)
		}
		for _, f := range batch.Frames {
			var d aetherv1.DownstreamMessage
			if err := proto.Unmarshal(f, &d); err != nil {
				l.g.t.Error(err)
			}
			m := d.GetMsg()
			if m == nil {
				continue
			}
			text := string(m.GetPayload())
			y.mu.Lock()
			y.times[text]++
			y.by[l]++
			if !m.GetRedelivered() {
				y.clean[text]++
			}
			y.mu.Unlock()
			if work != nil && !work(m) {
				continue
			}
			if err := l.box.AckOne(m.GetDeliveryId()); err != nil {
				l.g.t.Error(err)
			}
			y.mu.Lock()
			y.acked[text]++
			y.mu.Unlock()
		}
	}
}

// flood sends n messages to the workers.
func flood(from *session, first, n int) {
	for i := first; i < first+n; i++ {
		from.send(tasks, fmt.Sprint(i), "")
	}
}
