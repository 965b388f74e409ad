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
	d := ids{limit: limit}
	add := func(from, to int) time.Duration {
		began := time.Now()
		for i := from; i < to; i++ {
			d.add(keyOf("a", fmt.Sprint(i), "id"), 1, 0)
		}
		return time.Since(began)
	}
	filling := add(0, limit)
	full := add(limit, limit+n)
	if full/n > 20*filling/limit+10*time.Microsecond {
		t.Fatalf("%d more took %v, all before them %v", n, full, filling)
	}
	if len(d.index) != limit || len(d.pairs) != limit {
		t.Fatalf("%d ids of %d pairs are kept", len(d.index), len(d.pairs))
	}
	if d.find(keyOf("a", fmt.Sprint(n-1), "id"), 0) != nil || d.find(keyOf("a", fmt.Sprint(n), "id"), 0) == nil {
		t.Fatal("it is not the oldest that were forgotten")
	}
}

// Sends that the log refused at once pushed the ids of stored ones out.
func TestP6RefusedIsForgotten(t *testing.T) {
	t.Parallel()
	var d ids
	add := func(id string, seq uint64, outcome streams.Outcome) {
		key := keyOf("a", "b", id)
		d.add(key, 1, 0).seq = seq
		d.settle(key, seq, outcome)
	}
	add("stored", 1, streams.Stored)
	for i := range idsPerPair {
		add("refused", uint64(i+2), streams.NotStored)
	}
	if d.find(keyOf("a", "b", "stored"), 0) == nil || d.find(keyOf("a", "b", "refused"), 0) != nil || len(d.index) != 1 {
		t.Fatalf("%d are kept", len(d.index))
	}
	d.settle(keyOf("a", "b", "stored"), 1, streams.NotStored)
	if len(d.index) != 0 || len(d.pairs) != 0 || d.oldest != 0 || d.newest != 0 {
		t.Fatalf("%d ids of %d pairs are left", len(d.index), len(d.pairs))
	}
}

// The memory of each pair holds its newest ids, for ten minutes.
func TestP6MemoryIsBounded(t *testing.T) {
	t.Parallel()
	var d ids
	for s := range 70 {
		for i := range idsPerPair + 10 {
			d.add(keyOf(fmt.Sprint(s), "to", fmt.Sprint(i)), 1, 0)
		}
	}
	for _, pair := range d.pairs {
		inOrder := 0
		for i := pair.oldest; i != 0; i = d.slots[i].newerHere {
			inOrder++
		}
		if pair.n != idsPerPair || inOrder != idsPerPair {
			t.Fatalf("%d records of a pair, %d in order", pair.n, inOrder)
		}
	}
	if len(d.index) != 70*idsPerPair || len(d.slots) > 70*idsPerPair+2 {
		t.Fatalf("%d records in %d slots", len(d.index), len(d.slots))
	}
	if d.find(keyOf("69", "to", "9"), 0) != nil || d.find(keyOf("69", "to", "4105"), 0) == nil {
		t.Fatal("the wrong ones were forgotten")
	}
	if d.find(keyOf("69", "to", "4105"), idsFor.Milliseconds()+1) != nil {
		t.Fatal("an id is known after its time")
	}
	for range 70*idsPerPair/expireAtOnce + 1 {
		d.expire(idsFor.Milliseconds() + 1)
	}
	if len(d.index) != 0 || len(d.pairs) != 0 || len(d.slots) != 0 {
		t.Fatalf("%d left after their time, in %d slots", len(d.index), len(d.slots))
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
