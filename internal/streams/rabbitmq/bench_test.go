package rabbitmq

import (
	"fmt"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// BenchmarkEntries stores entries, with confirms, while a consumer reads them.
func BenchmarkEntries(b *testing.B) {
	for _, size := range []int{256, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			d := openDriver(b, Options{URLs: []string{testservices.RabbitMQ(b).URL()}, Streams: newStreams(1)})
			stored, read := make(chan struct{}), make(chan struct{})
			p, err := d.OpenProducer(testContext(b), 0, "bench", func(id uint64) {
				if id == uint64(b.N) {
					close(stored)
				}
			})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			seen := 0
			c, err := d.OpenConsumer(testContext(b), 0, streams.First(), func(streams.Entry) {
				if seen++; seen == b.N {
					close(read)
				}
			})
			if err != nil {
				b.Fatal(err)
			}
			defer c.Close()
			entry := make([]byte, size)
			b.SetBytes(int64(size))
			b.ReportAllocs()
			b.ResetTimer()
			for id := 1; id <= b.N; id++ {
				if err := p.Send(uint64(id), entry); err != nil {
					b.Fatal(err)
				}
			}
			<-stored
			<-read
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "entries/s")
		})
	}
}

// BenchmarkConfirm is the time from Send to the confirm and to the consumer, one
// entry at a time.
func BenchmarkConfirm(b *testing.B) {
	d := openDriver(b, Options{URLs: []string{testservices.RabbitMQ(b).URL()}, Streams: newStreams(1)})
	stored, read := make(chan struct{}, 1), make(chan struct{}, 1)
	p, err := d.OpenProducer(testContext(b), 0, "bench", func(uint64) { stored <- struct{}{} })
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	c, err := d.OpenConsumer(testContext(b), 0, streams.First(), func(streams.Entry) { read <- struct{}{} })
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	entry := make([]byte, 256)
	var confirms, reads time.Duration
	b.ResetTimer()
	for id := 1; id <= b.N; id++ {
		began := time.Now()
		if err := p.Send(uint64(id), entry); err != nil {
			b.Fatal(err)
		}
		<-stored
		confirms += time.Since(began)
		<-read
		reads += time.Since(began)
	}
	b.ReportMetric(float64(confirms.Microseconds())/float64(b.N), "µs/confirm")
	b.ReportMetric(float64(reads.Microseconds())/float64(b.N), "µs/delivery")
}
