package router

import (
	"context"
	"strconv"
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/streamstest"
)

// BenchmarkPair is the way of a message through the router on a log in memory:
// decided, stamped, stored, handed over, receipted, acknowledged. Frames are
// not sent.
func BenchmarkPair(b *testing.B) {
	log := streamstest.NewMemory(1)
	r := New(Options{Driver: log.Driver(), Placement: streams.Placement{Partitions: 1}, Positions: newMemoryStore()})
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = r.Close(ctx)
	}()
	<-r.Ready()
	join := func(spec string) (*Sender, *delivery.Mailbox, *Subscription) {
		a, _ := address.Agent("w", "i", spec)
		box := delivery.NewMailbox(delivery.Options{Mode: delivery.Client, MaxUnacked: 1024})
		s := r.NewSender(&acl.Principal{Kind: acl.Agent, Address: a, Workspace: "w"}, a.String(), presence.Lease{}, box, func() { b.Error("overflow") })
		sub, err := r.Subscribe(context.Background(), box, Reads{Exclusive: []string{a.String()}, Identity: a.String(), Lease: presence.Lease{Epoch: 1}})
		if err != nil {
			b.Fatal(err)
		}
		return s, box, sub
	}
	sender, answers, from := join("a")
	_, inbox, to := join("b")
	defer from.Leave(context.Background(), Leaving{})
	defer to.Leave(context.Background(), Leaving{})

	count := b.N
	done := make(chan struct{})
	go func() {
		defer close(done)
		var batch delivery.Batch
		for got := 0; got < count; {
			if !inbox.Take(&batch) {
				<-inbox.Wake()
				continue
			}
			got += len(batch.Frames)
			if len(batch.Frames) > 0 {
				_ = inbox.Ack(uint64(got))
			}
			for _, in := range batch.Feed {
				r.Feed(in)
			}
		}
	}()
	window := make(chan struct{}, 1000)
	receipted := make(chan struct{})
	go func() {
		defer close(receipted)
		var batch delivery.Batch
		for got := 0; got < count; {
			if !answers.Take(&batch) {
				<-answers.Wake()
				continue
			}
			for range batch.Frames {
				<-window
			}
			got += len(batch.Frames)
		}
	}()
	payload := make([]byte, 256)
	b.ReportAllocs()
	b.ResetTimer()
	for i := range count {
		window <- struct{}{}
		if err := sender.Send(&aetherv1.SendMessage{TargetTopic: "ag::w::i::b", Payload: payload, RequestId: strconv.Itoa(i)}); err != nil {
			b.Fatal(err)
		}
	}
	<-done
	<-receipted
}
