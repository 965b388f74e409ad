package router

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/streams"
)

// Every id of a new address cost a look at all addresses once the memory was
// full, under the lock of the partition: one sender could stop all.
func TestP6FullMemoryIsCheap(t *testing.T) {
	t.Parallel()
	const limit, n = 20_000, 5000
	d := idempotency{limit: limit}
	now := time.Now()
	add := func(from, to int) time.Duration {
		began := time.Now()
		for i := from; i < to; i++ {
			d.add(pair{"a", fmt.Sprint(i)}, "id", 1, now)
		}
		return time.Since(began)
	}
	filling := add(0, limit)
	full := add(limit, limit+n)
	if full/n > 20*filling/limit+10*time.Microsecond {
		t.Fatalf("%d more took %v, all before them %v", n, full, filling)
	}
	if d.total != limit || len(d.pairs) != limit {
		t.Fatalf("%d ids of %d pairs are kept", d.total, len(d.pairs))
	}
	if d.find(pair{"a", fmt.Sprint(n - 1)}, "id") != nil || d.find(pair{"a", fmt.Sprint(n)}, "id") == nil {
		t.Fatal("it is not the oldest that were forgotten")
	}
}

// Sends that the log refused at once pushed the ids of stored ones out.
func TestP6RefusedIsForgotten(t *testing.T) {
	t.Parallel()
	var d idempotency
	key, now := pair{"a", "b"}, time.Now()
	d.settle(d.add(key, "stored", 1, now), streams.Stored)
	for range idsPerPair {
		d.settle(d.add(key, "refused", 1, now), streams.NotStored)
	}
	if d.find(key, "stored") == nil || d.find(key, "refused") != nil || d.total != 1 {
		t.Fatalf("%d are kept", d.total)
	}
	d.settle(d.find(key, "stored"), streams.NotStored)
	if d.total != 0 || len(d.pairs) != 0 {
		t.Fatalf("%d ids of %d pairs are left", d.total, len(d.pairs))
	}
}

// The metadata of a metric is stamped, and was encoded in a different order
// each time: the retry of a metric was taken for another message.
func TestP6MetricRetry(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.agent("a", client(0))
	m := &aetherv1.Metric{Entries: []*aetherv1.MetricEntry{{Name: "tokens", Qty: 1}}, Metadata: map[string]string{}}
	for i := range 8 {
		m.Metadata[fmt.Sprint(i)] = "x"
	}
	payload, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		msg := &aetherv1.SendMessage{
			TargetTopic: "metric::*", MessageType: aetherv1.MessageType_MESSAGE_TYPE_METRIC, Payload: payload,
			MessageId: "same", RequestId: "r",
		}
		if err := a.sender.Send(msg); err != nil {
			t.Fatal(err)
		}
		if r := a.answer().GetReceipt(); r == nil || r.GetDuplicate() != (i > 0) {
			t.Fatalf("send %d: got %v", i, r)
		}
	}
}
