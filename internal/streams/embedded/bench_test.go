package embedded_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/streams/embedded"
)

// BenchmarkAppend stores entries with four in flight on each partition, while
// a consumer reads along, and reports how long confirms took.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{300, 10 << 10, 100_000, 256 << 10} {
		for _, partitions := range []int{1, 4} {
			b.Run(fmt.Sprintf("%dB/%dpartitions", size, partitions), func(b *testing.B) {
				benchmarkAppend(b, size, partitions)
			})
		}
	}
}

func benchmarkAppend(b *testing.B, size, partitions int) {
	log := setup(b, embedded.Options{Partitions: partitions, MaxBytes: 256 << 20})
	const inFlight = 4
	per := b.N/partitions + 1
	b.SetBytes(int64(size))
	b.ReportAllocs()
	type result struct{ took []time.Duration }
	results := make(chan result, partitions)
	read := make(chan struct{}, partitions)
	entry := make([]byte, size)
	for n := range partitions {
		count := 0
		_, err := log.d.OpenConsumer(context.Background(), n, streams.Next(), func(streams.Entry) {
			if count++; count == per {
				read <- struct{}{}
			}
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.ResetTimer()
	for n := range partitions {
		p := log.producer(n, "bench")
		go func() {
			r := result{took: make([]time.Duration, 0, per)}
			sent := make([]time.Time, per+1)
			next := 1
			for done := 0; done < per; done++ {
				for ; next <= per && next-done <= inFlight; next++ {
					sent[next] = time.Now()
					if err := p.Send(uint64(next), entry); err != nil {
						b.Error(err)
					}
				}
				id := <-p.confirmed
				r.took = append(r.took, time.Since(sent[id]))
			}
			results <- r
		}()
	}
	var took []time.Duration
	for range partitions {
		took = append(took, (<-results).took...)
	}
	b.StopTimer()
	for range partitions {
		<-read
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(len(took))/b.Elapsed().Seconds(), "entries/s")
}

// BenchmarkCatchUp reads a stored log from its first entry.
func BenchmarkCatchUp(b *testing.B) {
	for _, size := range []int{300, 100_000} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			log := setup(b, embedded.Options{})
			p := log.producer(0, "bench")
			count := min(20_000, 200<<20/size)
			entry := make([]byte, size)
			for id := range count {
				if err := p.Send(uint64(id+1), entry); err != nil {
					b.Fatal(err)
				}
				if id >= 64 {
					<-p.confirmed
				}
			}
			for range min(64, count) {
				<-p.confirmed
			}
			b.SetBytes(int64(size * count))
			b.ReportAllocs()
			for b.Loop() {
				entries, done := 0, make(chan struct{})
				c, err := log.d.OpenConsumer(context.Background(), 0, streams.First(), func(streams.Entry) {
					if entries++; entries == count {
						close(done)
					}
				})
				if err != nil {
					b.Fatal(err)
				}
				<-done
				_ = c.Close()
			}
			b.ReportMetric(float64(count*b.N)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}
