package router

import (
	"strings"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/limits"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

func (s *session) refused(to, text string, code wireerr.Code) *wireerr.Error {
	s.w.t.Helper()
	err := s.sender.Send(&aetherv1.SendMessage{TargetTopic: to, Payload: []byte(text), RequestId: "r"})
	if err == nil || err.Code != code {
		s.w.t.Fatalf("send to %s: got %v, want %s", to, err, code)
	}
	return err
}

// A workspace that has its bytes stores nothing more, and others do not notice;
// when retention has removed some, it goes on. What is refused is not stored.
func TestByteQuota(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.ByteQuota = 10_000 })
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	other, err := address.Agent("other", "i", "a")
	if err != nil {
		t.Fatal(err)
	}
	neighbour := w.join(&acl.Principal{Kind: acl.Agent, Address: other, Workspace: "other"}, other.String(), client(0), Reads{Exclusive: []string{other.String()}})
	text := strings.Repeat("x", 1000)
	stored := 0
	for ; ; stored++ {
		if stored > 10 {
			t.Fatal("more is stored than may be")
		}
		if w.r.quotas.usage.Over("w") {
			break
		}
		a.send(b.name, text, "r")
		a.answer()
		w.settled()
	}
	e := a.refused(b.name, text, wireerr.QuotaExceeded)
	if e.Retryable || e.Details["limit"] != "10000" || e.Details["unit"] != "bytes" {
		t.Errorf("told %+v", e)
	}
	neighbour.send(neighbour.name, text, "r")
	neighbour.answer()
	w.settled()
	if n := len(w.inLog(b.name)); n != stored {
		t.Errorf("%d messages are stored, %d were accepted", n, stored)
	}
	if got := w.r.quotas.usage.Of("other"); got < 1000 || got > 1300 {
		t.Errorf("the other workspace has %d bytes", got)
	}
	entries := w.log.Entries(0)
	w.log.Trim(0, entries[len(entries)-2].Offset)
	w.r.quotas.usage.Trim(t.Context())
	a.send(b.name, "again", "r")
}

// A workspace for which the store keeps too many addresses may write to those
// who are connected, and to no others.
func TestAddressQuota(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.AddressQuota = 10 })
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.store.set(func() { w.store.counted = map[string]int64{"w": 9, "v": 100} })
	if err := w.r.recountNames(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.send(absent, "1", "1")
	w.store.set(func() { w.store.counted = map[string]int64{"w": 10} })
	if err := w.r.recountNames(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := a.refused("ag::w::i::another", "2", wireerr.QuotaExceeded)
	if e.Details["unit"] != "addresses" || e.Details["limit"] != "10" {
		t.Errorf("told %+v", e)
	}
	a.send(b.name, "3", "3")
	b.wants("3")
	a.send("ga::w", "4", "4")
	w.store.set(func() { w.store.counted = nil })
	if err := w.r.recountNames(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.send("ag::w::i::another", "5", "5")
	if n := w.inLog("ag::w::i::another"); len(n) > 1 {
		t.Errorf("%d messages are stored", len(n))
	}
}

// What is refused by rate is neither stamped nor stored, and says whose limit it
// is and when to come again; what can never pass is not told to come again.
func TestRow19Refusals(t *testing.T) {
	t.Parallel()
	w := setup(t)
	now := time.Now()
	l := limits.New(limits.Options{Identity: limits.Rate{Messages: 1, Bytes: 1 << 30}, Now: func() time.Time { return now }})
	t.Cleanup(l.Close)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	account, err := l.Open(t.Context(), limits.Party{Identity: a.name, Workspace: "w"})
	if err != nil {
		t.Fatal(err)
	}
	defer account.Close()
	a.sender.Limit(account)
	a.send(b.name, "1", "1")
	a.send(b.name, "2", "2")
	e := a.refused(b.name, "3", wireerr.RateLimited)
	if !e.Retryable || e.RetryAfter <= 0 || e.RetryAfter > 1100*time.Millisecond || e.Details["scope"] != "identity" || e.Details["limit"] != "1" || e.Details["topic"] != b.name {
		t.Errorf("told %+v", e)
	}
	a.refused("ag::other::i::x", "3", wireerr.PermissionDenied)
	a.refused(b.name, strings.Repeat("x", defaultMaxPayload+1), wireerr.PayloadTooLarge)
	b.wants("1", "2")
	w.settled()
	if n := len(w.inLog(b.name)); n != 2 {
		t.Errorf("%d messages are stored", n)
	}
}

// BenchmarkRefused is what the refusal of a message by rate costs, with its
// answer.
func BenchmarkRefused(b *testing.B) {
	l := limits.New(limits.Options{Identity: limits.Rate{Messages: 1}})
	defer l.Close()
	account, err := l.Open(b.Context(), limits.Party{Identity: "ag::w::i::a"})
	if err != nil {
		b.Fatal(err)
	}
	s := &Sender{account: account}
	e := &envelope.Envelope{Payload: make([]byte, 256), Workspace: "w"}
	b.ReportAllocs()
	for b.Loop() {
		if err := s.checkRates(e); err != nil {
			ErrorFrame("r", answer{topic: "ag::w::i::b"}.name(err))
		}
	}
}
