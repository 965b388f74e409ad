package e2e

import (
	"fmt"
	"sync"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// taker reads all that comes for a peer and acknowledges it.
type taker struct {
	peer *peer

	mu   sync.Mutex
	got  []string
	at   map[string]time.Time
	gaps []*aetherv1.HistoryGap
	err  error
}

// take starts a taker, which reads as long as its connection lasts. CLIENT mode
// only.
func take(p *peer) *taker {
	t := &taker{peer: p, at: map[string]time.Time{}}
	go t.run()
	return t
}

func (t *taker) run() {
	for {
		m, err := t.peer.stream.Recv()
		if err != nil {
			t.mu.Lock()
			t.err = err
			t.mu.Unlock()
			return
		}
		if gap := m.GetGap(); gap != nil {
			t.mu.Lock()
			t.gaps = append(t.gaps, gap)
			t.mu.Unlock()
		}
		if m.GetMsg() == nil {
			continue
		}
		text := string(m.GetMsg().GetPayload())
		t.mu.Lock()
		t.got = append(t.got, text)
		t.at[text] = time.Now()
		t.mu.Unlock()
		if id := m.GetMsg().GetDeliveryId(); id > 0 {
			_ = t.peer.acknowledge(id) // an error shows with the next frame
		}
	}
}

// has says whether a text has come.
func (t *taker) has(text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, has := t.at[text]
	return has
}

// count returns how many messages have come.
func (t *taker) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.got)
}

// all returns what has come.
func (t *taker) all() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append([]string(nil), t.got...)
}

// ended says how the stream ended; nil: it has not.
func (t *taker) ended() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.err
}

// once fails the test for each text that came twice.
func (t *taker) once(tb testing.TB) {
	tb.Helper()
	seen := map[string]bool{}
	for _, text := range t.all() {
		if seen[text] {
			tb.Errorf("%q came to %s twice", text, t.peer.name())
		}
		seen[text] = true
	}
}

// insist sends a message until it is stored, always under the same message id,
// and returns how often that was.
func (p *peer) insist(m *aetherv1.SendMessage) int {
	p.tb.Helper()
	m.MessageId = fmt.Sprintf("insist-%s", m.GetPayload())
	for begun, n := time.Now(), 1; ; n++ {
		m.RequestId = p.request()
		receipt, refusal := p.ask(m)
		if receipt != nil {
			return n
		}
		if !refusal.GetRetryable() {
			p.tb.Fatalf("%s sends to %s: %v", p.id.name, m.GetTargetTopic(), refusal)
		}
		if time.Since(begun) > patience {
			p.tb.Fatalf("%s sends to %s: still refused after %v: %v", p.id.name, m.GetTargetTopic(), patience, refusal)
		}
		<-time.After(20 * time.Millisecond)
	}
}
