package router

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

const (
	// maxScanBytes bounds what one scan reads of the log.
	maxScanBytes = 256 << 20
	// scanIdle is how long a scan waits for an entry that must come before it
	// gives up.
	scanIdle = 3 * time.Second
	// maxScans bounds the scans of a gateway that run at a time; others wait.
	maxScans = 2
)

// errScanIdle ends a scan to which the log gives nothing.
var errScanIdle = errors.New("router: the log does not answer")

// visit is shown an envelope by a scan; what it wants to keep it copies. False
// ends the scan.
type visit func(v *envelope.View, position int64) bool

// scan reads a partition from the first position that is to be seen up to what
// its tail has shown by now, for operators. whole reports whether it came so
// far, or was ended by show; a scan that the bound or ctx ended is no error. It
// holds no lock while it calls show.
func (p *partition) scan(ctx context.Context, from int64, show visit) (whole bool, err error) {
	p.mu.Lock()
	end := p.tailAt
	var recent []streams.Entry
	if p.recent.covers(from - 1) {
		recent = slices.Clone(p.recent.entries)
	}
	p.mu.Unlock()
	if from > end {
		return true, nil
	}
	if recent == nil {
		return p.scanLog(ctx, streams.From(streams.Position(max(from, 0)).Offset()), from, end, show)
	}
	for _, e := range recent {
		select {
		case <-ctx.Done():
			return false, nil
		default:
		}
		if endOf(e.Offset) >= from && !scanEntry(e, from, show) {
			break
		}
	}
	return true, nil
}

// scanEntry reports whether the scan is to go on.
func scanEntry(e streams.Entry, from int64, show visit) bool {
	var v envelope.View
	for it := streams.Open(e.Data); it.Next(); {
		position := int64(streams.At(e.Offset, it.Index()))
		if position < from || v.Parse(it.Bytes()) != nil || v.Kind > envelope.Progress {
			continue
		}
		if !show(&v, position) {
			return false
		}
	}
	return true
}

// scanSince is scan from what was stored at a time, or a little before.
func (p *partition) scanSince(ctx context.Context, since time.Time, show visit) (whole bool, err error) {
	p.mu.Lock()
	end := p.tailAt
	p.mu.Unlock()
	if end < 0 {
		return true, nil
	}
	return p.scanLog(ctx, streams.Since(since), 0, end, show)
}

// scanLog is scan by a consumer of its own.
func (p *partition) scanLog(ctx context.Context, start streams.Start, from, end int64, show visit) (whole bool, err error) {
	select {
	case p.r.scanning <- struct{}{}:
		defer func() { <-p.r.scanning }()
	case <-ctx.Done():
		return false, nil
	}
	alive, finished := make(chan struct{}, 1), make(chan bool, 1)
	var over sync.Once
	finish := func(whole bool) { over.Do(func() { finished <- whole }) }
	read, ended := 0, false // of the consumer's goroutine
	opening, cancel := context.WithTimeout(ctx, scanIdle)
	c, err := p.r.driver.OpenConsumer(opening, p.id, start, func(e streams.Entry) {
		if ended {
			return
		}
		select {
		case alive <- struct{}{}:
		default:
		}
		if !scanEntry(e, from, show) || endOf(e.Offset) >= end {
			ended = true
			finish(true)
		} else if read += len(e.Data); read > maxScanBytes {
			ended = true
			finish(false)
		}
	})
	cancel()
	if err != nil {
		return false, err
	}
	defer func() { _ = c.Close() }()
	idle := time.NewTimer(scanIdle)
	defer idle.Stop()
	for {
		select {
		case whole := <-finished:
			return whole, nil
		case <-alive:
			idle.Reset(scanIdle)
		case <-c.Done():
			return false, streams.ErrClosed
		case <-idle.C:
			return false, errScanIdle
		case <-ctx.Done():
			return false, nil
		}
	}
}
