package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// peer is a [wire] whose failures are the test's. Its methods are for the
// test's own goroutine. Errors that it is told and that no test asks for fail
// the test at its end.
type peer struct {
	*wire
	tb testing.TB
	id identity
}

// connect connects as an identity, which must work at once.
func connect(tb testing.TB, g *gateway, id identity, options ...option) *peer {
	tb.Helper()
	w, err := dial(tb, g, id, options...)
	if err != nil {
		tb.Fatalf("connect as %s: %v", id.name, err)
	}
	return newPeer(tb, w, id)
}

// reconnect connects as an identity whose last connection the gateway may not
// yet know to be gone.
func reconnect(tb testing.TB, g *gateway, id identity, options ...option) *peer {
	tb.Helper()
	var w *wire
	var err error
	if !eventually(patience, func() bool {
		w, err = dial(tb, g, id, options...)
		code := statusOf(err).Code()
		return err == nil || code != codes.AlreadyExists && code != codes.Unavailable
	}) || err != nil {
		tb.Fatalf("connect again as %s: %v", id.name, err)
	}
	return newPeer(tb, w, id)
}

func newPeer(tb testing.TB, w *wire, id identity) *peer {
	if strings.HasPrefix(id.name, "ta::") {
		id.name += w.ack.GetAssignedId()
	}
	p := &peer{wire: w, tb: tb, id: id}
	tb.Cleanup(func() {
		for _, m := range p.kept {
			if m.GetError() != nil {
				tb.Errorf("%s was told an error that it did not ask for: %v", id.name, m.GetError())
			}
		}
	})
	return p
}

// name is the peer's identity string.
func (p *peer) name() string { return p.id.name }

// stored sends texts and waits until they are stored.
func (p *peer) stored(to string, texts ...string) {
	p.tb.Helper()
	if err := p.store(to, texts...); err != nil {
		p.tb.Fatalf("%s sends to %s: %v", p.id.name, to, err)
	}
}

// ask sends a message with a request id and returns its answer.
func (p *peer) ask(m *aetherv1.SendMessage) (*aetherv1.SendReceipt, *aetherv1.ErrorResponse) {
	p.tb.Helper()
	if m.RequestId == "" {
		m.RequestId = p.request()
	}
	check(p.tb, p.send(m))
	receipt, refusal, err := p.answer(m.RequestId)
	if err != nil {
		p.tb.Fatalf("%s sends to %s: %v", p.id.name, m.GetTargetTopic(), err)
	}
	return receipt, refusal
}

// accepted sends a message, which must be stored.
func (p *peer) accepted(m *aetherv1.SendMessage) *aetherv1.SendReceipt {
	p.tb.Helper()
	receipt, refusal := p.ask(m)
	if refusal != nil {
		p.tb.Fatalf("%s sends to %s: %v", p.id.name, m.GetTargetTopic(), refusal)
	}
	return receipt
}

// refused sends a message, which must be refused with a code.
func (p *peer) refused(code string, m *aetherv1.SendMessage) *aetherv1.ErrorResponse {
	p.tb.Helper()
	receipt, refusal := p.ask(m)
	if receipt != nil {
		p.tb.Errorf("%s sends to %.300q: it was stored, want %s", p.id.name, m.GetTargetTopic(), code)
		return nil
	}
	if refusal.GetCode() != code || refusal.GetMessage() == "" {
		p.tb.Errorf("%s sends to %.300q: %v, want %s and a reason", p.id.name, m.GetTargetTopic(), refusal, code)
	}
	return refusal
}

// read returns the next message.
func (p *peer) read() *aetherv1.IncomingMessage {
	p.tb.Helper()
	m, err := p.message()
	if err != nil {
		p.tb.Fatalf("%s waits for a message: %v", p.id.name, err)
	}
	return m
}

// reads returns the next n messages, each with the acknowledgement of a
// hundred when it has come, and of all at the end. CLIENT mode only.
func (p *peer) reads(n int) []*aetherv1.IncomingMessage {
	p.tb.Helper()
	list := make([]*aetherv1.IncomingMessage, 0, n)
	for len(list) < n {
		m := p.read()
		list = append(list, m)
		if id := m.GetDeliveryId(); id > 0 && (id >= p.acked+100 || len(list) == n) {
			p.acks(id)
		}
	}
	return list
}

func (p *peer) acks(upTo uint64) {
	p.tb.Helper()
	check(p.tb, p.acknowledge(upTo))
}

// until returns the messages before the one with a text. That one proves that
// nothing else was on its way before it.
func (p *peer) until(marker string) []*aetherv1.IncomingMessage {
	p.tb.Helper()
	var list []*aetherv1.IncomingMessage
	for {
		m := p.read()
		if id := m.GetDeliveryId(); id > 0 && p.mayAck(id) {
			p.acks(id)
		}
		if string(m.GetPayload()) == marker {
			return list
		}
		list = append(list, m)
	}
}

func (p *peer) mayAck(id uint64) bool { return p.window() && id >= p.acked+100 }

// window says whether the peer is in CLIENT mode; it remembers by its acks.
func (p *peer) window() bool { return p.acked > 0 }

// errorOf returns the next error that has no request id.
func (p *peer) errorOf(code string) *aetherv1.ErrorResponse {
	p.tb.Helper()
	m, err := p.await(func(m *down) bool { return m.GetError() != nil && m.GetError().GetRequestId() == "" })
	if err != nil {
		p.tb.Fatalf("%s waits for %s: %v", p.id.name, code, err)
	}
	if got := m.GetError(); got.GetCode() != code || got.GetMessage() == "" {
		p.tb.Errorf("%s got %v, want %s and a reason", p.id.name, got, code)
	}
	return m.GetError()
}

// leaves half-closes and expects a clean end.
func (p *peer) leaves() {
	p.tb.Helper()
	if err := p.leave(); err != nil {
		p.tb.Fatalf("%s leaves: %v", p.id.name, err)
	}
	p.conn.Close()
}

// synced waits until the gateway has handled all that this peer has sent: it
// answers what comes last.
func (p *peer) synced() {
	p.tb.Helper()
	p.refused("ERR_INVALID_TOPIC", chat("nowhere", ""))
}

// beats waits for n heartbeats, which come once in a second of silence.
func (p *peer) beats(n int) {
	p.tb.Helper()
	for range n {
		if _, err := p.await(func(m *down) bool { return m.GetHeartbeat() != nil }); err != nil {
			p.tb.Fatalf("%s waits for a heartbeat: %v", p.id.name, err)
		}
	}
}

// texts returns the payloads.
func texts(list []*aetherv1.IncomingMessage) []string {
	out := make([]string, len(list))
	for i, m := range list {
		out[i] = string(m.GetPayload())
	}
	return out
}

// wantTexts compares the payloads with what was sent, and says where they
// part.
func wantTexts(tb testing.TB, got []*aetherv1.IncomingMessage, want []string) {
	tb.Helper()
	have := texts(got)
	if slices.Equal(have, want) {
		return
	}
	at := 0
	for at < min(len(have), len(want)) && have[at] == want[at] {
		at++
	}
	show := func(list []string) string {
		return fmt.Sprintf("%.60q", list[min(at, len(list)):min(at+5, len(list))])
	}
	tb.Errorf("%d messages came, want %d; from the %dth on they are %s, want %s", len(have), len(want), at+1, show(have), show(want))
}

// wantFresh expects that nothing is flagged as delivered before.
func wantFresh(tb testing.TB, got []*aetherv1.IncomingMessage) {
	tb.Helper()
	for _, m := range got {
		if m.GetRedelivered() {
			tb.Errorf("%q is flagged as redelivered", m.GetPayload())
			return
		}
	}
}

// workspace is a name that no other test uses, and the same in both modes.
func workspace(tb testing.TB) string {
	_, name, _ := strings.Cut(tb.Name(), "/")
	return strings.NewReplacer("/", "-", " ", "-").Replace(name)
}

// within fails the test if something took longer than it may.
func within(tb testing.TB, limit time.Duration, since time.Time, what string) {
	tb.Helper()
	if took := time.Since(since); took > limit {
		tb.Errorf("%s took %v, want at most %v", what, took.Round(time.Millisecond), limit)
	}
}
