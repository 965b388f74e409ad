package router

import (
	"context"
	"fmt"
	"time"

	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

// Every marker carries the fingerprint of its gateway's placement (delivery
// rules M1, C9). The oldest one that a gateway finds when it starts says how
// the log was written; where that differs from its own it does not become
// ready. A gateway that serves already takes a strange marker for one of a
// newcomer that is about to refuse itself, and says so.

// placementKey is the metadata of a marker that holds the fingerprint.
const placementKey = "aether-placement"

const (
	// markEvery is how often a gateway writes a marker into a partition even
	// if nobody needs one, so that who starts finds one when it reads back.
	markEvery = 5 * time.Minute
	// firstMarkerTime bounds the search for the log's first marker. It is
	// usually the first entry; retention may have removed it.
	firstMarkerTime = 3 * time.Second
)

// PlacementError says that the log was written with another placement: mail
// would be looked for in the wrong partitions. Both are fingerprints.
type PlacementError struct{ Log, Own string }

func (e *PlacementError) Error() string {
	return fmt.Sprintf("router: the log was written with placement %s, this gateway has %s", e.Log, e.Own)
}

// Misplaced is closed when the log was written with another placement than this
// gateway's; it will not become ready then. See [Router.PlacementError].
func (r *Router) Misplaced() <-chan struct{} { return r.misplaced }

// PlacementError returns what is wrong once Misplaced is closed, nil before.
func (r *Router) PlacementError() *PlacementError { return r.placementError.Load() }

func (r *Router) misplacedBy(fingerprint string) {
	if r.placementError.CompareAndSwap(nil, &PlacementError{Log: fingerprint, Own: r.fingerprint}) {
		r.log.Error("the log was written with another placement; this gateway does not serve", "log", fingerprint, "own", r.fingerprint)
		close(r.misplaced)
	}
}

// compare looks at a marker of another process that the tail shows. The lock is
// held.
func (p *partition) compare(v *envelope.View) {
	fingerprint, ok := v.Meta(placementKey)
	if !ok {
		return
	}
	first := !p.marked && !p.ready
	p.marked = true
	switch {
	case string(fingerprint) == p.r.fingerprint:
	case first:
		p.r.misplacedBy(string(fingerprint))
	case p.strange != string(fingerprint):
		p.strange = string(fingerprint)
		p.r.log.Error("a gateway with another placement has written to the log; it must not serve",
			"partition", p.id, "placement", p.strange, "own", p.r.fingerprint)
	}
}

// checkFirst looks for the first marker of the log, which is all there is to
// compare with after a time without gateways. The first partition is part of
// every placement.
func (r *Router) checkFirst(ctx context.Context) {
	for failures := 1; ; failures++ {
		fingerprint, err := r.firstMarker(ctx)
		if err == nil {
			if fingerprint == "" || fingerprint == r.fingerprint {
				r.partReady()
			} else {
				r.misplacedBy(fingerprint)
			}
			return
		}
		if !wait(ctx, backoffAfter(failures)) {
			return
		}
	}
}

// firstMarker returns the fingerprint in the first marker, "" if none is found
// in time.
func (r *Router) firstMarker(ctx context.Context) (string, error) {
	found := make(chan string, 1)
	opening, cancel := context.WithTimeout(ctx, firstMarkerTime)
	defer cancel()
	c, err := r.driver.OpenConsumer(opening, 0, streams.First(), func(e streams.Entry) {
		var v envelope.View
		for it := streams.Open(e.Data); it.Next(); {
			if v.Parse(it.Bytes()) != nil || v.Kind != envelope.Marker {
				continue
			}
			if fingerprint, ok := v.Meta(placementKey); ok {
				select {
				case found <- string(fingerprint):
				default:
				}
				return
			}
		}
	})
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	timeout := time.NewTimer(firstMarkerTime)
	defer timeout.Stop()
	select {
	case fingerprint := <-found:
		return fingerprint, nil
	case <-timeout.C:
		return "", nil
	case <-c.Done():
		return "", streams.ErrClosed
	case <-ctx.Done():
		return "", ctx.Err()
	}
}
