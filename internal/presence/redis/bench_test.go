package redis

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/testservices"
)

func benchGateway(b *testing.B) *Presence {
	b.Helper()
	p, err := New(Options{URL: testservices.Redis(b).URL(), Instance: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	if err := p.Start(b.Context(), nil); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close(b.Context()) })
	if err := p.client.HSet(b.Context(), "{aether}:0:inc", "until", 0).Err(); err != nil {
		b.Fatal(err)
	}
	return p
}

func BenchmarkClaimRelease(b *testing.B) {
	p := benchGateway(b)
	var n atomic.Int64
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			i := n.Add(1)
			lease, err := p.Acquire(b.Context(), fmt.Sprint("s", i), fmt.Sprint("ag::workspace::implementation::", i))
			if err == nil {
				err = p.Release(b.Context(), lease)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}

func BenchmarkHeld(b *testing.B) {
	d := newDirectory(time.Now)
	d.beat("i", 0, []presence.Instance{{ID: "b"}}, time.Now().Add(time.Hour), false)
	d.scanBegin()
	rows := make([]change, 100_000)
	for i := range rows {
		rows[i] = change{name: fmt.Sprint("ag::workspace::implementation::", i), session: "s", boot: "b", epoch: 1}
	}
	d.scanPiece("i", 0, rows)
	d.scanEnd("i", 0)
	b.ReportAllocs()
	for b.Loop() {
		if _, held, _ := d.lookup("ag::workspace::implementation::77"); !held {
			b.Fatal("not held")
		}
		if _, held, _ := d.lookup("ag::workspace::implementation::x"); held {
			b.Fatal("held")
		}
	}
}

// BenchmarkScan reads a directory of 100,000 names.
func BenchmarkScan(b *testing.B) {
	p := benchGateway(b)
	for i := range 10_000 {
		names := make([]string, 10)
		for k := range names {
			names[k] = fmt.Sprint("ag::workspace::implementation::", i, "/", k)
		}
		if _, err := p.Acquire(b.Context(), fmt.Sprint("s", i), names...); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if !p.scan() {
			b.Fatal("the scan failed")
		}
	}
}
