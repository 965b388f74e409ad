package router

import (
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

// A gateway that starts reads the log back, so that it knows the message ids of
// the time before it (delivery rule P6): the tail begins ten minutes ago, and
// the partition is ready when the tail has come by the marker that was written
// when it opened (M1). Nobody is connected yet, so nothing is delivered.
//
// That is bounded in time. Where more was stored than can be read meanwhile,
// the newest ids matter most: the tail begins anew a minute ago, and at last at
// the end.

// lookbacks are how far back the tail begins, one after the other. The clocks
// of the log and of the gateways need not agree to the second.
var lookbacks = [...]time.Duration{idsFor + 30*time.Second, time.Minute, 0}

// lookbackTime is how long each may take. A million messages take a second or
// two; giving up too soon, on a machine that is busy, is a second copy of what
// somebody repeats.
const lookbackTime = 20 * time.Second

// lookback returns where the tail begins.
func (p *partition) lookback() streams.Start {
	back := lookbacks[p.lookbacks]
	if back == 0 {
		return streams.Next()
	}
	return streams.Since(p.r.now().Add(-back))
}

// tooLong reports whether a look-back is to begin anew, shorter. The lock is
// held.
func (p *partition) tooLong(now time.Time) bool {
	if p.ready || p.upSince.IsZero() || p.lookbacks == len(lookbacks)-1 || now.Sub(p.upSince) < p.r.lookbackTime {
		return false
	}
	p.lookbacks++
	p.r.log.Warn("reading the log back takes too long; repeats of older messages will not be recognised",
		"partition", p.id, "since", now.Add(-lookbacks[p.lookbacks]))
	return true
}
