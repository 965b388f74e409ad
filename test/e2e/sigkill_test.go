package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// stubborn sends numbered texts, one after the other, each under a message id of
// its own, until it is stored: over every broken stream and every error that may
// pass.
type stubborn struct {
	addr func() string
	id   identity
	to   string
	name string

	stored, tries int
}

func (s *stubborn) run(ctx context.Context) (err error) {
	var w *wire
	defer func() {
		if w != nil {
			w.cut()
		}
	}()
	for ctx.Err() == nil {
		text := fmt.Sprintf("%s %d", s.name, s.stored+1)
		for {
			if w == nil {
				if w, err = s.dial(ctx); err != nil {
					return err
				}
				if w == nil {
					return nil // no more
				}
			}
			s.tries++
			done, err := s.try(w, text)
			if err != nil {
				return err
			}
			if done {
				break
			}
			if w.stream.Context().Err() != nil {
				w.cut()
				w = nil
			}
		}
		s.stored++
	}
	return nil
}

// try sends a text once. An error is one that does not pass.
func (s *stubborn) try(w *wire, text string) (stored bool, err error) {
	m := chat(s.to, text)
	m.MessageId, m.RequestId = "id-"+text, w.request()
	if w.send(m) != nil {
		w.cancel()
		return false, nil //nolint:nilerr // the stream has ended; there will be another
	}
	receipt, refusal, err := w.answer(m.RequestId)
	switch {
	case err != nil:
		w.cancel()
		return false, nil //nolint:nilerr // as above
	case receipt.GetStatus() == aetherv1.SendReceipt_STATUS_STORED:
		return true, nil
	case !refusal.GetRetryable():
		return false, fmt.Errorf("%q: %v", text, refusal)
	}
	<-time.After(10 * time.Millisecond)
	return false, nil
}

// dial connects as soon as a gateway lets it in; nil: it did not before the end.
func (s *stubborn) dial(ctx context.Context) (*wire, error) {
	init, err := s.id.frame(client(100))
	if err != nil {
		return nil, err
	}
	for ctx.Err() == nil {
		if w, err := tryOpen(s.addr()); err == nil {
			if w.greet(init) == nil {
				return w, nil
			}
			w.cut()
		}
		<-time.After(50 * time.Millisecond)
	}
	return nil, nil
}

// Row 17: gateway and broker are killed at random under load: everything that
// has a receipt can be read afterwards, once, although most of it was sent
// several times.
func TestRow17RandomKills(t *testing.T) {
	t.Parallel()
	rounds := long(4, 20)
	seed := uint64(time.Now().UnixNano())
	t.Logf("the seed is %d", seed)
	dice := rand.New(rand.NewPCG(seed, 0))
	const ws = "kills"
	f := newFaults(t, testservices.Postgres(t).URL())
	var mu sync.Mutex
	addr := f.grpc
	where := func() string { mu.Lock(); defer mu.Unlock(); return addr }

	to := agent(ws, "i", "r")
	var senders []*stubborn
	running, stop := context.WithCancel(context.Background())
	defer stop()
	var group errgroup.Group
	for name, id := range crowd(ws) {
		s := &stubborn{addr: where, id: id, to: to.name, name: name}
		senders = append(senders, s)
		group.Go(func() error { return s.run(running) })
	}
	for round := range rounds {
		// Some load, with a gateway that answers.
		f.awaitReady(t, true, patience)
		probe := connect(t, f.gateway, user(ws, fmt.Sprint("probe", round), ws))
		for i := range 50 + dice.IntN(100) {
			probe.stored("ga::"+ws, fmt.Sprint(i))
		}
		kind := dice.IntN(3)
		if kind != 0 {
			f.broker.Kill()
		}
		if kind != 1 {
			f.kill()
		}
		if kind != 0 {
			f.broker.Start()
		}
		if kind != 1 {
			f.restart()
			mu.Lock()
			addr = f.grpc
			mu.Unlock()
		}
	}
	f.awaitReady(t, true, patience)
	stop()
	check(t, group.Wait())

	last := connect(t, f.gateway, user(ws, "last", ws))
	last.insist(chat(to.name, "last"))
	reader := take(connect(t, f.gateway, to, client(1000)))
	if !eventually(patience, func() bool { return reader.has("last") }) {
		t.Fatalf("the last message does not come; the stream: %v", reader.ended())
	}
	reader.once(t)
	next, tries, stored := map[string]int{}, 0, 0
	for _, text := range reader.all() {
		if text == "last" {
			continue
		}
		who, n, err := parseNumbered(text)
		check(t, err)
		if n != next[who]+1 {
			t.Errorf("%q came after %s %d", text, who, next[who])
		}
		next[who] = n
	}
	for _, s := range senders {
		if next[s.name] < s.stored {
			t.Errorf("%s has %d receipts, %d messages can be read", s.name, s.stored, next[s.name])
		}
		tries, stored = tries+s.tries, stored+s.stored
	}
	t.Logf("%d messages stored by %d sends", stored, tries)
}
