package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/streams/streamstest"
)

// withDeadLetters is setup with a log for them.
func withDeadLetters(t *testing.T, change ...func(*Options)) *world {
	t.Helper()
	w := &world{t: t, log: streamstest.NewMemory(2), store: newMemoryStore()}
	w.start(change...)
	return w
}

func (s *session) nack(id uint64) {
	s.w.t.Helper()
	n, err := s.box.Nack(id, true, "")
	if err != nil {
		s.w.t.Fatal(err)
	}
	s.w.r.Nacked(n)
}

// reject nacks a message until its last attempt.
func (s *session) reject(text string) (last *aetherv1.IncomingMessage) {
	s.w.t.Helper()
	for range maxAttempts {
		last = s.message()
		if string(last.GetPayload()) != text {
			s.w.t.Fatalf("got %q", last.GetPayload())
		}
		s.nack(last.GetDeliveryId())
	}
	return last
}

func (w *world) deadLetters(from uint64, limit int) ([]DeadLetter, uint64) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	list, next, err := w.r.DeadLetters(ctx, from, limit, DeadLetterFilter{})
	if err != nil {
		w.t.Fatal(err)
	}
	return list, next
}

// Delivery rule S8: after its last attempt a message is in the dead-letter log,
// with its reason, and the position goes on; not before.
func TestS8DeadLetter(t *testing.T) {
	t.Parallel()
	w := withDeadLetters(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	if list, next := w.deadLetters(0, 10); len(list) != 0 || next != 0 {
		t.Fatalf("a new log has %v", list)
	}
	err := a.sender.Send(&aetherv1.SendMessage{
		TargetTopic: b.name, Payload: []byte("bad"), MessageId: "id1", Metadata: map[string]string{"k": "v"}, Subject: "s.t",
	})
	if err != nil {
		t.Fatal(err)
	}
	last := b.reject("bad")
	w.eventually(func() bool { return w.r.stats.DeadLetters.Load() == 1 })
	w.settled()
	w.eventually(func() bool { _, _, open := b.box.PositionOf(last.GetDeliveryId()); return !open })
	at := w.inLog(b.name)[0]
	w.eventually(func() bool {
		w.r.commit(context.Background())
		row := w.store.at(b.name)
		return row != nil && row.Position >= at
	})
	list, _ := w.deadLetters(0, 10)
	if len(list) != 1 {
		t.Fatalf("the log has %v", list)
	}
	d := list[0]
	if d.Reason != DeadRejected || d.Attempts != maxAttempts || d.Original != at || d.At.IsZero() {
		t.Errorf("got %+v", d)
	}
	if m := d.Message; m.GetTopic() != b.name || m.GetSource() != a.name || m.GetMessageId() != "id1" || m.GetSubject() != "s.t" ||
		string(m.GetPayload()) != "bad" || len(m.GetMetadata()) != 1 || m.GetMetadata()["k"] != "v" || m.GetTimestampMs() == 0 {
		t.Errorf("got %v", m)
	}
}

// Delivery rule S8: the dead-letter log is away: the delivery stays open, and
// comes again to the next session.
func TestS8LogAway(t *testing.T) {
	t.Parallel()
	w := withDeadLetters(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	a.send(b.name, "bad", "r")
	a.receipts(1)
	w.settled()
	// The last attempt is refused while nothing can be stored.
	for range maxAttempts - 1 {
		b.nack(b.message().GetDeliveryId())
	}
	last := b.message()
	w.log.HoldConfirms(true)
	b.nack(last.GetDeliveryId())
	w.eventually(func() bool { w.r.dead.mu.Lock(); defer w.r.dead.mu.Unlock(); return w.r.dead.seq > 0 })
	if _, _, open := b.box.PositionOf(last.GetDeliveryId()); !open {
		t.Fatal("it is done before it is in the dead-letter log")
	}
	b.leave()
	w.log.HoldConfirms(false)
	b = w.agent("b", client(0))
	b.wants("bad")
}

// Delivery rule S8: what workers do not finish goes there, too.
func TestS8DeadLetterOfWorkers(t *testing.T) {
	t.Parallel()
	w := withDeadLetters(t)
	a, one := w.agent("a", client(0)), w.worker("1", client(0))
	a.send("tb::w::i", "bad", "")
	for range groupAttempts {
		one.nack(one.message().GetDeliveryId())
	}
	w.eventually(func() bool { return w.r.stats.DeadLetters.Load() == 1 })
	if list, _ := w.deadLetters(0, 10); len(list) != 1 || list[0].Reason != DeadUnfinished || list[0].Message.GetTopic() != "tb::w::i" {
		t.Fatalf("the log has %v", list)
	}
}

// Operators list dead letters in pages, replay one, and purge.
func TestS8Operators(t *testing.T) {
	t.Parallel()
	w := withDeadLetters(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	const n = 7
	for i := range n {
		a.send(b.name, fmt.Sprint(i), "")
	}
	for range n * maxAttempts { // together: the pauses between attempts are long
		b.nack(b.message().GetDeliveryId())
	}
	w.eventually(func() bool { return w.r.stats.DeadLetters.Load() == n })
	var all []DeadLetter
	for from, pages := uint64(0), 0; ; pages++ {
		list, next := w.deadLetters(from, 3)
		all = append(all, list...)
		if from = next; next == 0 {
			if pages != 2 {
				t.Errorf("%d pages", pages+1)
			}
			break
		}
	}
	if len(all) != n {
		t.Fatalf("%d are listed", len(all))
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()

	// Replayed to somebody who is away: it is noted like any other.
	b.leave()
	if id, err := w.r.ReplayDeadLetter(ctx, all[3].Position); err != nil || id == "" {
		t.Fatal(err)
	}
	if _, err := w.r.ReplayDeadLetter(ctx, all[3].Position); !errors.Is(err, ErrReplayed) {
		t.Errorf("replayed twice: %v", err)
	}
	b = w.agent("b", client(0))
	m := b.message()
	if !bytes.Equal(m.GetPayload(), all[3].Message.GetPayload()) || m.GetSourceTopic() != a.name || m.GetMessageId() == all[3].Message.GetMessageId() ||
		m.GetMetadata()[replayOf] != all[3].Message.GetMessageId() || !m.GetRedelivered() {
		t.Errorf("got %v", m)
	}
	if n, err := w.r.PurgeDeadLetters(ctx, all[1].Position, all[4].Position); err != nil || n != 3 {
		t.Fatalf("purged %d: %v", n, err)
	}
	list, _ := w.deadLetters(0, 100)
	if left, want := payloads(list), payloads([]DeadLetter{all[0], all[5], all[6]}); left != want {
		t.Errorf("left are %v, want %v", left, want)
	}
	for position, want := range map[uint64]error{
		all[2].Position: ErrNoDeadLetter, all[3].Position: ErrReplayed, all[6].Position + 1: ErrNoDeadLetter, 1 << 50: ErrNoDeadLetter,
	} {
		if _, err := w.r.ReplayDeadLetter(ctx, position); !errors.Is(err, want) {
			t.Errorf("replay of %d: %v, want %v", position, err, want)
		}
	}
	if list, next, err := w.r.DeadLetters(ctx, 1<<50, 10, DeadLetterFilter{}); len(list) != 0 || next != 0 || err != nil {
		t.Errorf("beyond the end: %v, %d, %v", list, next, err)
	}

	// What is refused again after a replay is a dead letter anew, and names the
	// first message still.
	for attempt := range maxAttempts {
		if attempt > 0 {
			m = b.message()
		}
		b.nack(m.GetDeliveryId())
	}
	w.eventually(func() bool { return w.r.stats.DeadLetters.Load() == n+1 })
	again, _ := w.deadLetters(all[6].Position+1, 10)
	if len(again) != 1 || again[0].Message.GetMetadata()[replayOf] != all[3].Message.GetMessageId() {
		t.Fatalf("replayed and refused: %v", again)
	}
	if _, err := w.r.ReplayDeadLetter(ctx, again[0].Position); err != nil {
		t.Error(err)
	}
	if again := b.message(); !bytes.Equal(again.GetPayload(), m.GetPayload()) || again.GetMetadata()[replayOf] != all[3].Message.GetMessageId() {
		t.Errorf("got %v", again)
	}

	// What is given up after a purge of everything stays; the filter.
	if n, err := w.r.PurgeDeadLetters(ctx, 0, math.MaxUint64); err != nil || n != 3 {
		t.Errorf("purged %d: %v", n, err)
	}
	a.send(b.name, "later", "")
	b.reject("later")
	w.eventually(func() bool { return w.r.stats.DeadLetters.Load() == n+2 })
	for filter, want := range map[DeadLetterFilter]int{
		{}: 1, {Prefix: "ag::w"}: 1, {Prefix: "tb::"}: 0, {Reason: DeadRejected}: 1, {Reason: DeadUnclaimed}: 0,
	} {
		if list, _, err := w.r.DeadLetters(ctx, 0, 10, filter); err != nil || len(list) != want {
			t.Errorf("%+v: %v, %v", filter, list, err)
		}
	}
}

func payloads(list []DeadLetter) string {
	texts := make([]string, len(list))
	for i, d := range list {
		texts[i] = string(d.Message.GetPayload())
	}
	return fmt.Sprint(texts)
}

// Two gateways replay one letter at a time: it is sent once (delivery rule P6).
// Another one that comes to know of it later lists it no more.
func TestS8ReplayOnTwoGateways(t *testing.T) {
	t.Parallel()
	w := withDeadLetters(t)
	other := w.second()
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	a.send(b.name, "bad", "")
	b.reject("bad")
	w.eventually(func() bool { return w.r.stats.DeadLetters.Load() == 1 })
	list, _ := w.deadLetters(0, 10)
	if len(list) != 1 {
		t.Fatalf("the log has %v", list)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var both sync.WaitGroup
	errs := make([]error, 2)
	for i, r := range []*Router{w.r, other.r} {
		both.Go(func() { _, errs[i] = r.ReplayDeadLetter(ctx, list[0].Position) })
	}
	both.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, ErrReplayed) {
			t.Errorf("got %v", errs)
		}
	}
	if m := b.message(); string(m.GetPayload()) != "bad" {
		t.Errorf("got %v", m)
	}
	a.send(b.name, "end", "")
	b.wants("end")
	for _, r := range []*Router{w.r, other.r} {
		if list, _, err := r.DeadLetters(ctx, 0, 10, DeadLetterFilter{}); len(list) != 0 || err != nil {
			t.Errorf("listed are %v, %v", list, err)
		}
	}
}

// A log that was made without dead letters goes on as before.
func TestS8NoDeadLetterLog(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	a.send(b.name, "bad", "")
	last := b.reject("bad")
	w.eventually(func() bool { _, _, open := b.box.PositionOf(last.GetDeliveryId()); return !open })
	if _, _, err := w.r.DeadLetters(context.Background(), 0, 1, DeadLetterFilter{}); !errors.Is(err, ErrNoDeadLetters) {
		t.Errorf("got %v", err)
	}
}
