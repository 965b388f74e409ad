package peers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/aether-gateway/gateway/internal/presence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is gateways whose notices go through lose.
type world struct {
	mu    sync.Mutex
	nodes map[string]*node
	order []string
	lose  func(to, kind string) bool // nil: nothing
}

// node is a gateway's presence.
type node struct {
	w     *world
	id    string
	inbox presence.Dispatcher
}

func (w *world) add(t *testing.T, id string) *Peers {
	t.Helper()
	n := &node{w: w, id: id}
	w.mu.Lock()
	if w.nodes == nil {
		w.nodes = map[string]*node{}
	}
	w.nodes[id], w.order = n, append(w.order, id)
	w.mu.Unlock()
	p := New(n, nil)
	t.Cleanup(func() {
		p.Close()
		n.inbox.Close()
	})
	return p
}

func (n *node) Send(to, kind string, payload []byte) error {
	if err := presence.CheckNotice(kind, payload); err != nil {
		return err
	}
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.w.lose != nil && n.w.lose(to, kind) {
		return nil
	}
	if peer := n.w.nodes[to]; peer != nil {
		peer.inbox.Put(presence.Notice{From: n.id, Kind: kind, Payload: bytes.Clone(payload)})
	}
	return nil
}

func (n *node) Listen(kind string, f func(presence.Notice)) func() { return n.inbox.Listen(kind, f) }

func (n *node) Self() presence.Instance { return presence.Instance{ID: n.id, Name: n.id} }

func (n *node) Instances() (list []presence.Instance, certain bool) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	for _, id := range n.w.order {
		list = append(list, presence.Instance{ID: id, Name: id})
	}
	return list, true
}

func greet(name string) Answerer {
	return func(_ context.Context, q []byte) []byte { return fmt.Appendf(nil, "%s to %s", name, q) }
}

// All gateways answer, the one that asks among them.
func TestAskAll(t *testing.T) {
	t.Parallel()
	w := &world{}
	a := w.add(t, "a")
	for _, p := range []struct {
		name  string
		peers *Peers
	}{{"a", a}, {"b", w.add(t, "b")}, {"c", w.add(t, "c")}} {
		p.peers.Handle("greet", greet(p.name))
	}
	answers, certain := a.AskAll(t.Context(), "greet", []byte("you"))
	if !certain || len(answers) != 3 {
		t.Fatalf("%v, certain %v", answers, certain)
	}
	for _, got := range answers {
		if got.Err != nil || string(got.Payload) != got.From.ID+" to you" {
			t.Errorf("%s: %q, %v", got.From.ID, got.Payload, got.Err)
		}
	}
}

// A gateway that does not know the question says so, one that does not answer
// costs the time that there is, and no more.
func TestNoAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &world{lose: func(to, _ string) bool { return to == "deaf" }}
		a := w.add(t, "a")
		w.add(t, "old")
		w.add(t, "deaf").Handle("greet", greet("deaf"))
		a.Handle("greet", greet("a"))
		began := time.Now()
		answers, _ := a.AskAll(t.Context(), "greet", nil)
		want := []error{nil, ErrUnknown, ErrSilent}
		for i, got := range answers {
			if !errors.Is(got.Err, want[i]) {
				t.Errorf("%s: %v, want %v", got.From.ID, got.Err, want[i])
			}
		}
		if took := time.Since(began); took != DefaultTimeout {
			t.Errorf("it took %s", took)
		}
		// Who asks for an answer by a time can still tell it then.
		for limit, want := range map[time.Duration]time.Duration{time.Second: 750 * time.Millisecond, time.Minute: DefaultTimeout} {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			began = time.Now()
			if answers, _ := a.AskAll(ctx, "greet", nil); answers[0].Err != nil || !errors.Is(answers[2].Err, ErrSilent) {
				t.Errorf("%v", answers)
			}
			if took := time.Since(began); took != want {
				t.Errorf("within %s it took %s", limit, took)
			}
			cancel()
		}
	})
}

// What notices lose is asked again, and a question that was answered already is
// not acted on twice.
func TestLossy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		lost := map[string]int{}
		w := &world{lose: func(_, kind string) bool {
			lost[kind]++
			return lost[kind] == 1
		}}
		a, b := w.add(t, "a"), w.add(t, "b")
		var calls int
		b.Handle("count", func(context.Context, []byte) []byte {
			calls++
			return fmt.Append(nil, calls)
		})
		got, err := a.Ask(t.Context(), "b", "count", nil)
		if err != nil || string(got) != "1" || calls != 1 {
			t.Errorf("%q, %v after %d calls", got, err, calls)
		}
	})
}

func TestTooLarge(t *testing.T) {
	t.Parallel()
	w := &world{}
	a, b := w.add(t, "a"), w.add(t, "b")
	b.Handle("much", func(context.Context, []byte) []byte { return make([]byte, MaxPayload+1) })
	b.Handle("most", func(context.Context, []byte) []byte { return make([]byte, MaxPayload) })
	if _, err := a.Ask(t.Context(), "b", "much", nil); !errors.Is(err, ErrTooLarge) {
		t.Errorf("an answer: %v", err)
	}
	if _, err := a.Ask(t.Context(), "b", "most", make([]byte, MaxPayload+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a question: %v", err)
	}
	if got, err := a.Ask(t.Context(), "b", "most", make([]byte, MaxPayload)); err != nil || len(got) != MaxPayload {
		t.Errorf("the largest: %d bytes, %v", len(got), err)
	}
}

// What is kept of answers is bounded, and a closed gateway asks nobody.
func TestBounds(t *testing.T) {
	t.Parallel()
	w := &world{}
	a, b := w.add(t, "a"), w.add(t, "b")
	b.Handle("greet", greet("b"))
	for range maxAnswered + 10 {
		if _, err := a.Ask(t.Context(), "b", "greet", nil); err != nil {
			t.Fatal(err)
		}
	}
	b.mu.Lock()
	if len(b.answered) > maxAnswered || len(b.order) != len(b.answered) {
		t.Errorf("%d answers are kept, %d in order", len(b.answered), len(b.order))
	}
	b.mu.Unlock()
	a.mu.Lock()
	if len(a.open) != 0 {
		t.Errorf("%d questions are open", len(a.open))
	}
	a.mu.Unlock()
	a.Close()
	if _, err := a.Ask(t.Context(), "b", "greet", nil); !errors.Is(err, presence.ErrClosed) {
		t.Errorf("after the end: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(encodeAsk(1, "kind", []byte("q")))
	f.Add(encodeAnswer(1, stateTooLarge, nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if id, kind, q, ok := decodeAsk(b); ok && !bytes.Equal(encodeAsk(id, kind, q), b) {
			t.Errorf("a question %x is not what it was", b)
		}
		if id, s, payload, ok := decodeAnswer(b); ok && !bytes.Equal(encodeAnswer(id, s, payload), b) {
			t.Errorf("an answer %x is not what it was", b)
		}
	})
}
