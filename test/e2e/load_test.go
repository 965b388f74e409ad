package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// load is senders that send numbered texts at a pace, each on a connection of
// its own, and note how every send was answered. They never send a text again.
type load struct {
	tb      testing.TB
	stop    chan struct{}
	senders errgroup.Group
	readers errgroup.Group

	mu      sync.Mutex
	at      map[string]time.Time // text → when it was sent
	answers map[string]int       // text → how often it was answered
	stored  map[string]bool
	errors  map[string]int // code → how many
	slowest time.Duration
	hard    []string // errors that are not called retryable
}

// newLoad starts the senders. Their texts are "name n" from 1.
func newLoad(tb testing.TB, g *gateway, to string, pace time.Duration, ids map[string]identity) *load {
	tb.Helper()
	l := &load{
		tb: tb, stop: make(chan struct{}), at: map[string]time.Time{}, answers: map[string]int{},
		stored: map[string]bool{}, errors: map[string]int{},
	}
	for name, id := range ids {
		w := connect(tb, g, id, plain).wire
		done := make(chan int, 1)
		l.senders.Go(func() error {
			n, err := l.send(w, to, name, pace)
			done <- n
			return err
		})
		l.readers.Go(func() error { return l.read(w, done) })
	}
	return l
}

func (l *load) send(w *wire, to, name string, pace time.Duration) (n int, err error) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			m := chat("nowhere", "")
			m.RequestId = over
			return n, w.send(m)
		case <-tick.C:
		}
		text := fmt.Sprintf("%s %d", name, n+1)
		m := chat(to, text)
		m.RequestId = text
		l.mu.Lock()
		l.at[text] = time.Now()
		l.mu.Unlock()
		if err := w.send(m); err != nil {
			return n, err
		}
		n++
	}
}

// over is the request id of the last send, which is refused: whoever waits for
// answers learns that there are no more sends.
const over = "over"

// read notes answers until all sends have one, once the sender has stopped.
func (l *load) read(w *wire, done chan int) error {
	total := -1
	for n := 0; n != total; {
		m, err := w.await(func(m *down) bool { return m.GetReceipt() != nil || m.GetError() != nil })
		if err != nil {
			return err
		}
		if m.GetError().GetRequestId() == over {
			total = <-done
			continue
		}
		l.note(m)
		n++
	}
	return nil
}

func (l *load) note(m *down) {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := m.GetReceipt().GetRequestId() + m.GetError().GetRequestId()
	l.answers[text]++
	l.slowest = max(l.slowest, time.Since(l.at[text]))
	if m.GetReceipt().GetStatus() == aetherv1.SendReceipt_STATUS_STORED {
		l.stored[text] = true
		return
	}
	l.errors[m.GetError().GetCode()]++
	if !m.GetError().GetRetryable() && len(l.hard) < 5 {
		l.hard = append(l.hard, m.GetError().String())
	}
}

// storedCount returns how many receipts there are.
func (l *load) storedCount() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.stored)
}

// isStored says whether a text has a receipt.
func (l *load) isStored(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stored[text]
}

func (l *load) failed() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, k := range l.errors {
		n += k
	}
	return n
}

// sentAt returns when a text was sent.
func (l *load) sentAt(text string) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.at[text]
}

// end stops the senders. The error is that of a connection that broke.
func (l *load) end() error {
	close(l.stop)
	sent := l.senders.Wait()
	if err := l.readers.Wait(); err != nil {
		return err
	}
	return sent
}

// settle ends the load, which must have been answered quickly, and verifies what
// its receiver has got by the time it gets one more message.
func (l *load) settle(t *testing.T, sentinel *peer, to string, receiver *taker) {
	t.Helper()
	check(t, l.end())
	sentinel.insist(chat(to, "last"))
	if !eventually(patience, func() bool { return receiver.has("last") }) {
		t.Fatal("the last message does not come")
	}
	got := receiver.all()
	l.verify(t, got[:len(got)-1])
	if l.slowest > 6*time.Second {
		t.Errorf("the slowest answer took %v, want less than 6 s", l.slowest)
	}
}

// verify compares what was received with what has a receipt: all of that came,
// each sender's in order, nothing twice.
func (l *load) verify(t *testing.T, got []string) {
	t.Helper()
	came := map[string]bool{}
	last := map[string]int{}
	for _, text := range got {
		who, n, err := parseNumbered(text)
		check(t, err)
		if n <= last[who] {
			t.Errorf("%q came after %s %d", text, who, last[who])
		}
		last[who] = n
		came[text] = true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	missing := 0
	for text := range l.stored {
		if !came[text] {
			if missing++; missing <= 5 {
				t.Errorf("%q has a receipt and did not come", text)
			}
		}
	}
	if missing > 0 {
		t.Errorf("%d of %d messages with a receipt are lost", missing, len(l.stored))
	}
	for text, n := range l.answers {
		if n != 1 {
			t.Errorf("%q was answered %d times", text, n)
		}
	}
	for _, e := range l.hard {
		t.Errorf("an error that is not called retryable: %s", e)
	}
}
