package router

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/streams"
)

var (
	modelTime = flag.Duration("model.time", 1500*time.Millisecond, "how long each schedule of TestModel runs")
	modelSeed = flag.Uint64("model.seed", 0, "the schedule of TestModel; 0 draws some")
)

// TestModel runs senders and receivers that come, go, acknowledge, nack, read
// slowly and retry at random, on a log that fails at random, and compares what
// they saw with what the log holds.
func TestModel(t *testing.T) {
	t.Parallel()
	seeds := []uint64{*modelSeed}
	if *modelSeed == 0 {
		n := rand.Uint64N(1 << 32)
		seeds = []uint64{n, n + 1, n + 2} // one of each kind
	}
	for _, seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			m := newModel(t, seed)
			m.run(*modelTime)
			m.check()
			if t.Failed() {
				t.Logf("again with -model.seed=%d", seed)
			}
		})
	}
}

const (
	modelReceivers = 3
	modelSenders   = 3
	modelWorkers   = 3
	workersTopic   = "tb::w::i"
)

// attemptKey is the metadata that tells the attempts to send a message apart.
const attemptKey = "attempt"

// sighting is a message as a receiver was given it.
type sighting struct {
	session     int
	redelivered bool
}

// model is what is known of all messages. They are named by address, payload
// and attempt: one that was handed over live and then not stored is sent again.
type model struct {
	t     *testing.T
	w     *world
	seed  uint64
	kind  modelKind
	clock atomic.Uint64 // orders acknowledgements and commits
	stop  chan struct{}
	ended atomic.Bool
	names atomic.Int64

	mu       sync.Mutex
	seen     map[string][]sighting
	done     map[string]uint64 // when it was acknowledged, or nacked for the last time
	stored   map[string]bool   // by receipt
	commits  []commitSeen
	sessions int
	before   map[int]ending // by a receiver's session: the end of the one before it
	hurried  map[int]bool   // sessions that left before the log had shown what they had
}

// ending is how a receiver's session ended.
type ending struct {
	session int
	from    int64           // the position behind which it began
	open    map[string]bool // what it had been given and was not done with
}

type commitSeen struct {
	store.Commit
	at uint64
}

// modelKind says how the log fails.
type modelKind uint64

const (
	notAtAll modelKind = iota
	slowly             // it is silent for a moment
	badly
)

func newModel(t *testing.T, seed uint64) *model {
	m := &model{
		t: t, seed: seed, kind: modelKind(seed % 3), stop: make(chan struct{}),
		seen: map[string][]sighting{}, done: map[string]uint64{}, stored: map[string]bool{}, before: map[int]ending{}, hurried: map[int]bool{},
	}
	m.w = setup(t, func(o *Options) {
		o.RingBytes = 4000
		o.PublishTimeout = 300 * time.Millisecond
		o.Positions = &watchedStore{o.Positions.(*memoryStore), m}
		o.Logger = nil
	})
	return m
}

// watchedStore notes what is committed when.
type watchedStore struct {
	*memoryStore
	m *model
}

func (s *watchedStore) Commit(ctx context.Context, list []store.Commit) error {
	at := s.m.clock.Add(1)
	err := s.memoryStore.Commit(ctx, list)
	s.committed(list, at, err)
	return err
}

func (s *watchedStore) CommitClean(ctx context.Context, list []store.Commit) error {
	at := s.m.clock.Add(1)
	err := s.memoryStore.CommitClean(ctx, list)
	s.committed(list, at, err)
	return err
}

func (s *watchedStore) committed(list []store.Commit, at uint64, err error) {
	if err != nil {
		return
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	for _, c := range list {
		s.m.commits = append(s.m.commits, commitSeen{c, at})
	}
}

func (m *model) random(name string, n int) *rand.Rand {
	return rand.New(rand.NewPCG(m.seed, uint64(len(name))<<32|uint64(n)))
}

// pause waits a little; it reports false when the schedule is over.
func (m *model) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-m.stop:
		return false
	}
}

func (m *model) run(d time.Duration) {
	var senders, others, faults sync.WaitGroup
	for i := range modelReceivers {
		others.Go(func() { m.receiver(i) })
	}
	for i := range modelWorkers {
		others.Go(func() { m.worker(i) })
	}
	for i := range modelSenders {
		senders.Go(func() { m.sender(i) })
	}
	switch m.kind {
	case slowly:
		faults.Go(m.delays)
	case badly:
		faults.Go(m.faults)
	}
	<-time.After(d)
	close(m.stop)
	faults.Wait()
	senders.Wait()
	m.w.eventually(func() bool {
		p := m.w.r.parts[0]
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.handover && p.seen >= p.stored
	})
	m.ended.Store(true)
	others.Wait()
}

// delays makes the log silent for a moment, again and again.
func (m *model) delays() {
	r, log := m.random("delays", 0), m.w.log
	for on := true; m.pause(time.Duration(5+r.IntN(30)) * time.Millisecond); on = !on {
		if log.Stall(on && r.IntN(2) == 0); on {
			log.HoldConfirms(r.IntN(2) == 0)
		}
	}
	log.Stall(false)
	log.HoldConfirms(false)
}

// faults makes the log fail, and mends it at the end.
func (m *model) faults() {
	r, log, store := m.random("faults", 0), m.w.log, m.w.store
	for m.pause(time.Duration(r.IntN(40)) * time.Millisecond) {
		switch r.IntN(9) {
		case 0:
			log.Drop()
		case 1:
			log.Stall(true)
		case 2:
			log.HoldConfirms(true)
		case 3:
			log.Refuse(true)
			log.Drop()
		case 4:
			m.w.r.parts[0].tail.Reset()
		case 5:
			store.fail(true)
		default:
			log.Stall(false)
			log.HoldConfirms(false)
			log.Refuse(false)
			store.fail(false)
		}
	}
	log.Stall(false)
	log.HoldConfirms(false)
	log.Refuse(false)
	store.fail(false)
}

// finished reports whether a session was given everything up to a message, and
// was done with it.
func (m *model) finished(position map[string]uint64, name string, end ending) bool {
	topic, _, _ := strings.Cut(name, " ")
	for other, p := range position {
		if int64(p) <= end.from || p > position[name] || !strings.HasPrefix(other, topic+" ") {
			continue
		}
		if end.open[other] || !slices.ContainsFunc(m.seen[other], func(s sighting) bool { return s.session == end.session }) {
			return false
		}
	}
	return int64(position[name]) > end.from
}

// check compares what was seen with the log.
func (m *model) check() {
	t := m.t
	position, stored := map[string]uint64{}, map[string]bool{}
	for _, e := range m.w.log.Entries(0) {
		it := streams.Open(e.Data)
		for it.Next() {
			var v envelope.View
			if err := v.Parse(it.Bytes()); err != nil {
				t.Fatal(err)
			}
			if v.Kind != envelope.Message {
				continue
			}
			var d aetherv1.DownstreamMessage
			if err := proto.Unmarshal(v.AppendFrame(nil, envelope.Delivery{}), &d); err != nil {
				t.Fatal(err)
			}
			id := string(v.Topic) + " " + string(v.Payload)
			if stored[id] {
				t.Errorf("%s is stored twice", id)
			}
			stored[id] = true
			position[id+" "+d.GetMsg().GetMetadata()[attemptKey]] = uint64(streams.At(e.Offset, it.Index()))
		}
	}
	for name := range m.stored {
		if !stored[name] {
			t.Errorf("%s has a receipt and is not stored", name)
		}
	}
	repeats, notDone := 0, 0
	for name := range position {
		workers := strings.HasPrefix(name, workersTopic)
		if len(m.seen[name]) == 0 {
			t.Errorf("%s was never delivered", name)
			continue
		}
		if m.done[name] == 0 {
			// Workers that left without finishing it may have used it up.
			if notDone++; !workers || notDone > int(m.w.r.stats.GivenUp.Load()) {
				t.Errorf("%s is not done", name)
			}
		}
		fresh, sure := map[int]int{}, m.kind != badly
		for _, s := range m.seen[name] {
			sure = sure && !m.hurried[s.session]
			if !s.redelivered {
				fresh[s.session]++
				fresh[0]++
			}
		}
		for session, n := range fresh {
			if n > 1 && (session != 0 || workers || sure) {
				t.Errorf("%s came %d times without a flag (%v)", name, n, m.seen[name])
			}
		}
		if fresh[0] > 1 {
			repeats++
		}
		if !sure || workers {
			continue // what was done may not have been committed
		}
		for session := range fresh {
			if last := m.before[session]; session != 0 && m.finished(position, name, last) {
				t.Errorf("%s came again in session %d; %d was done with it, and with all before it", name, session, last.session)
			}
		}
	}
	for _, c := range m.commits {
		for name, at := range position {
			if !strings.HasPrefix(name, c.Address+" ") || at > c.Position {
				continue
			}
			if done := m.done[name]; done == 0 || done > c.at {
				t.Errorf("%d was committed for %s, past %s at %d, which was not done", c.Position, c.Address, name, at)
			}
		}
	}
	r := m.w.r
	t.Logf("kind %d, %d messages, %d sessions, %d commits, %d came again in a later session; live %d, redelivered %d, catch-ups %d, given up %d, duplicates %d, left in a hurry %d",
		m.kind, len(position), m.sessions, len(m.commits), repeats, r.stats.Live.Load(), r.stats.Redelivered.Load(), r.stats.CatchUps.Load(), r.stats.GivenUp.Load(), r.stats.Duplicates.Load(), len(m.hurried))
	if len(position) == 0 {
		t.Error("nothing was stored: the test shows nothing")
	}
}
