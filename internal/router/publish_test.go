package router

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/streams"
)

// Delivery rule P4: an entry that is not confirmed in time fails its sends,
// each with one answer, and is stored all the same when the log comes back.
func TestP4Timeout(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.PublishTimeout = 200 * time.Millisecond })
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	w.log.Stall(true)
	if err := a.sender.Send(&aetherv1.SendMessage{TargetTopic: "ag::w::i::c", Payload: []byte("x"), RequestId: "r1", MessageId: "id"}); err != nil {
		t.Fatal(err)
	}
	e := a.answer().GetError()
	if e.GetRequestId() != "r1" || !e.GetRetryable() || e.GetCode() != "ERR_PUBLISH_FAILED" && e.GetCode() != "ERR_UNAVAILABLE" {
		t.Fatalf("got %v", e)
	}
	w.log.Stall(false)
	w.settled()
	// The retry with the same id is stored once.
	for {
		err := a.sender.Send(&aetherv1.SendMessage{TargetTopic: "ag::w::i::c", Payload: []byte("x"), RequestId: "r2", MessageId: "id"})
		if err != nil {
			t.Fatal(err)
		}
		if r := a.answer().GetReceipt(); r != nil {
			if r.GetRequestId() != "r2" {
				t.Fatalf("got %v", r)
			}
			break
		}
	}
	w.settled()
	c := w.agent("c", client(0))
	c.wants("x")
	w.settled()
	c.pump()
	c.quiet()
}

// readOnly is a driver that can be made to lose its producer and open no other.
type readOnly struct {
	streams.Driver
	on       atomic.Bool
	producer atomic.Pointer[streams.Producer]
}

func (d *readOnly) OpenProducer(ctx context.Context, partition int, name string, confirmed func(uint64)) (streams.Producer, error) {
	if d.on.Load() {
		return nil, errors.New("read only")
	}
	p, err := d.Driver.OpenProducer(ctx, partition, name, confirmed)
	d.producer.Store(&p)
	return p, err
}

// What was delivered live and then not stored, because the publish failed, is no
// copy to the log when its sender sends it again under its id. Its receiver has
// had it: the repeat was not flagged.
func TestRepeatsOfFailedSendsAreFlagged(t *testing.T) {
	t.Parallel()
	var driver *readOnly
	w := setup(t, func(o *Options) {
		driver = &readOnly{Driver: o.Driver}
		o.Driver, o.PublishTimeout = driver, 200*time.Millisecond
	})
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	once := func(id string) *aetherv1.DownstreamMessage {
		t.Helper()
		if err := a.sender.Send(&aetherv1.SendMessage{TargetTopic: "ag::w::i::b", Payload: []byte(id), RequestId: "r", MessageId: id}); err != nil {
			runtime.Gosched()
			return nil // refused at once: the log is still away
		}
		return a.answer()
	}
	driver.on.Store(true)
	_ = (*driver.producer.Load()).Close()
	if e := once("id").GetError(); !e.GetRetryable() {
		t.Fatalf("got %v", e)
	}
	if m := b.message(); m.GetRedelivered() || string(m.GetPayload()) != "id" {
		t.Fatalf("want a new live delivery, got %v", m)
	}
	driver.on.Store(false)
	for once("id").GetReceipt() == nil {
	}
	for once("other").GetReceipt() == nil {
	}
	for first := true; ; first = false {
		m := b.message()
		if string(m.GetPayload()) == "other" {
			if first || m.GetRedelivered() {
				t.Errorf("first %t, want the repeat before it and this one new: %v", first, m)
			}
			return
		}
		if !m.GetRedelivered() {
			t.Errorf("a repeat is not flagged: %v", m)
		}
	}
}

// Delivery rule P6: a repeated message id is delivered once; with another
// payload it is refused; other senders and addresses have ids of their own.
func TestP6Idempotency(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	msg := func(to, text, request string) *aetherv1.SendMessage {
		return &aetherv1.SendMessage{TargetTopic: to, Payload: []byte(text), RequestId: request, MessageId: "same"}
	}
	w.log.HoldConfirms(true)
	for i := range 3 {
		if err := a.sender.Send(msg("ag::w::i::b", "x", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	w.log.HoldConfirms(false)
	duplicates := 0
	for range 3 {
		r := a.answer().GetReceipt()
		if r.GetMessageId() != "same" || r.GetStatus() != aetherv1.SendReceipt_STATUS_STORED {
			t.Fatalf("got %v", r)
		}
		if r.GetDuplicate() {
			duplicates++
		}
	}
	if duplicates != 2 {
		t.Fatalf("%d duplicates", duplicates)
	}
	if err := a.sender.Send(msg("ag::w::i::b", "x", "late")); err != nil {
		t.Fatal(err)
	}
	if r := a.answer().GetReceipt(); !r.GetDuplicate() {
		t.Fatalf("got %v", r)
	}
	if err := a.sender.Send(msg("ag::w::i::b", "other", "r")); err == nil || err.Code != "ERR_INVALID_ARGUMENT" {
		t.Fatalf("got %v", err)
	}
	if err := b.sender.Send(msg("ag::w::i::b", "from b", "r")); err != nil {
		t.Fatal(err)
	}
	b.wants("x", "from b")
	w.settled()
	b.quiet()
}
