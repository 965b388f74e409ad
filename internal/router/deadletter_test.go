package router

import (
	"context"
	"errors"
	"fmt"
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
	n, err := s.box.Nack(id, true)
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
	list, next, err := w.r.DeadLetters(ctx, from, limit)
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
		text := fmt.Sprint(i)
		a.send(b.name, text, "")
		b.reject(text)
		w.eventually(func() bool { return w.r.stats.DeadLetters.Load() == uint64(i+1) })
	}
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
	if err := w.r.ReplayDeadLetter(ctx, all[3].Position); err != nil {
		t.Fatal(err)
	}
	if err := w.r.ReplayDeadLetter(ctx, all[3].Position); !errors.Is(err, ErrNoDeadLetter) {
		t.Errorf("replayed twice: %v", err)
	}
	b = w.agent("b", client(0))
	m := b.message()
	if string(m.GetPayload()) != "3" || m.GetSourceTopic() != a.name || m.GetMessageId() == all[3].Message.GetMessageId() ||
		m.GetMetadata()[replayOf] != all[3].Message.GetMessageId() {
		t.Errorf("got %v", m)
	}
	if err := w.r.PurgeDeadLetters(ctx, all[1].Position, all[4].Position); err != nil {
		t.Fatal(err)
	}
	list, _ := w.deadLetters(0, 100)
	var left []string
	for _, d := range list {
		left = append(left, string(d.Message.GetPayload()))
	}
	if fmt.Sprint(left) != "[0 5 6]" {
		t.Errorf("left are %v", left)
	}
	for _, position := range []uint64{all[2].Position, all[6].Position + 1, 1 << 50} {
		if err := w.r.ReplayDeadLetter(ctx, position); !errors.Is(err, ErrNoDeadLetter) {
			t.Errorf("replay of %d: %v", position, err)
		}
	}
	if list, next, err := w.r.DeadLetters(ctx, 1<<50, 10); len(list) != 0 || next != 0 || err != nil {
		t.Errorf("beyond the end: %v, %d, %v", list, next, err)
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
	if _, _, err := w.r.DeadLetters(context.Background(), 0, 1); !errors.Is(err, ErrNoDeadLetters) {
		t.Errorf("got %v", err)
	}
}
