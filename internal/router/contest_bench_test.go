package router

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/redis"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/streamstest"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// BenchmarkWorkers is the way of a message to one of four competing workers on
// a log in memory: by a gateway that is alone, and by one and two gateways that
// claim in Redis.
func BenchmarkWorkers(b *testing.B) {
	b.Run("alone", func(b *testing.B) { benchmarkWorkers(b, 0) })
	b.Run("redis", func(b *testing.B) { benchmarkWorkers(b, 1) })
	b.Run("two", func(b *testing.B) { benchmarkWorkers(b, 2) })
}

func benchmarkWorkers(b *testing.B, shared int) {
	log, rows := streamstest.NewMemory(1), newMemoryStore()
	var routers []*Router
	open := func(o Options) {
		o.Driver, o.Placement, o.Positions = log.Driver(), streams.Placement{Partitions: 1}, rows
		r := New(o)
		b.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_ = r.Close(ctx)
		})
		<-r.Ready()
		routers = append(routers, r)
	}
	if shared == 0 {
		open(Options{})
	} else {
		server := testservices.Redis(b)
		for i := range shared {
			p, err := redis.New(redis.Options{URL: server.URL(), Instance: fmt.Sprint(i)})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = p.Close(context.Background()) })
			if err := p.Start(b.Context(), nil); err != nil {
				b.Fatal(err)
			}
			open(Options{Presence: p})
		}
		raw := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
		defer raw.Close()
		if err := raw.HSet(b.Context(), "{aether}:0:inc", "until", 0).Err(); err != nil {
			b.Fatal(err)
		}
	}
	got := make(chan int, 1024)
	ctx, cancel := context.WithCancel(context.Background())
	for i := range 4 {
		r := routers[i%len(routers)]
		box := delivery.NewMailbox(delivery.Options{Mode: delivery.Client, MaxUnacked: 256})
		sub, err := r.Subscribe(ctx, box, Reads{Workers: tasks, Identity: fmt.Sprint("ta::w::i::", i)})
		if err != nil {
			b.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			var batch delivery.Batch
			total := 0
			for {
				if !box.Take(&batch) {
					select {
					case <-box.Wake():
						continue
					case <-ctx.Done():
						return
					}
				}
				if n := len(batch.Frames); n > 0 {
					total += n
					_ = box.Ack(uint64(total))
					got <- n
				}
				for _, in := range batch.Feed {
					r.Feed(in)
				}
			}
		}()
		defer func() {
			<-done
			sub.Leave(context.Background(), Leaving{})
		}()
	}
	defer cancel()
	a, _ := address.Agent("w", "i", "a")
	answers := delivery.NewMailbox(delivery.Options{})
	sender := routers[0].NewSender(&acl.Principal{Kind: acl.Agent, Address: a, Workspace: "w"}, a.String(), presence.Lease{Epoch: 1}, answers, func() { b.Error("overflow") })
	send := func(i int) {
		if err := sender.Send(&aetherv1.SendMessage{TargetTopic: tasks, Payload: make([]byte, 256), MessageId: strconv.Itoa(i)}); err != nil {
			b.Fatal(err)
		}
	}
	send(-1)
	<-got // the workers are there
	b.ReportAllocs()
	b.ResetTimer()
	began := time.Now()
	flying := 0 // sent and not acknowledged
	for i := range b.N {
		send(i)
		flying++
		for flying >= 2000 {
			flying -= <-got
		}
	}
	for flying > 0 {
		flying -= <-got
	}
	b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "msg/s")
}
