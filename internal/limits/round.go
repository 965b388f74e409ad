package limits

import (
	"context"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

// touch puts a bucket on the list of those that others are to be told of. It is
// on it once at most.
func (l *Limiter) touch(b *bucket) {
	l.tmu.Lock()
	l.touched = append(l.touched, b)
	l.tmu.Unlock()
}

// hurry asks for a round soon.
func (l *Limiter) hurry() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// run is the goroutine of rounds. Without other gateways it only forgets.
func (l *Limiter) run() {
	every := roundEvery
	if l.o.Counters == nil {
		every = time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	wake := l.wake
	swept := l.o.Now()
	for {
		select {
		case <-l.stop:
			if l.o.Counters != nil {
				l.round(l.o.Now()) // what was used last goes to those who go on
			}
			return
		case <-pause.C:
			wake = l.wake
			continue
		case <-l.begin:
		case <-wake:
		case <-tick.C:
		}
		if l.o.Counters != nil {
			l.round(l.o.Now())
			wake = nil // not before the pause is over
			pause.Reset(minRound)
		}
		if now := l.o.Now(); now.Sub(swept) >= time.Second {
			swept = now
			l.sweep(now)
		}
	}
}

// told is one bucket in a round.
type told struct {
	b       *bucket
	usage   presence.Usage
	leaving bool
}

// round tells the others what was used, and takes what they answer.
func (l *Limiter) round(now time.Time) {
	openings, list, usages := l.collect(now)
	defer func() {
		for _, o := range openings {
			close(o.done)
		}
	}()
	if len(list) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), roundTimeout)
	defer cancel()
	err := l.o.Counters.Exchange(ctx, usages)
	if (err != nil) != l.failed {
		l.failed = err != nil
		if err != nil {
			l.log.Warn("limits cannot be shared with other gateways; each keeps the part that it had", "error", err)
		} else {
			l.log.Info("limits are shared with other gateways again")
		}
	}
	now = l.o.Now()
	for i := range list {
		t := &list[i]
		t.b.mu.Lock()
		if err == nil {
			t.b.told(now, &t.usage)
		}
		again := err != nil || !t.b.resting()
		touch := again && !t.b.touched
		t.b.touched = t.b.touched || touch
		t.b.mu.Unlock()
		if touch {
			l.touch(t.b)
		}
		if t.leaving && err == nil {
			l.gone(t.b)
		}
	}
}

// collect takes what is to be told: of those who begin, of those who have sent,
// and, in turn, of those who have a key open.
func (l *Limiter) collect(now time.Time) ([]opening, []told, []*presence.Usage) {
	l.tmu.Lock()
	touched := l.touched
	l.touched = nil
	l.tmu.Unlock()

	l.mu.Lock()
	defer l.mu.Unlock()
	openings := l.opening
	l.opening = nil
	var list []told
	in := map[*bucket]bool{}
	add := func(b *bucket) {
		if !in[b] && (b.refs > 0 || b.leaving) {
			in[b] = true
			list = append(list, told{b: b, leaving: b.leaving})
		}
	}
	for _, o := range openings {
		for _, b := range o.buckets {
			add(b)
		}
	}
	var later []*bucket
	for _, b := range touched {
		b.mu.Lock()
		due := b.leaving || b.due(now)
		b.touched = !due
		b.mu.Unlock()
		if due {
			add(b)
		} else {
			later = append(later, b)
		}
	}
	turn := len(l.shared)/int(renewEvery/roundEvery) + 1
	for range min(turn, len(l.shared)) {
		if l.at >= len(l.shared) {
			l.at = 0
		}
		b := l.shared[l.at]
		l.at++
		b.mu.Lock()
		due := now.Sub(b.toldAt) >= renewEvery/2
		b.mu.Unlock()
		if due {
			add(b)
		}
	}
	l.tmu.Lock()
	l.touched = append(later, l.touched...)
	l.tmu.Unlock()

	usages := make([]*presence.Usage, len(list))
	for i := range list {
		t := &list[i]
		t.b.mu.Lock()
		t.b.tell(now, &t.usage)
		t.b.mu.Unlock()
		t.usage.Holders, t.usage.Leaving = t.b.holders, t.leaving
		usages[i] = &t.usage
	}
	return openings, list, usages
}

// gone forgets a bucket that others have been told of, if nobody uses it.
func (l *Limiter) gone(b *bucket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b.refs == 0 && b.leaving {
		l.forget(b)
	}
}
