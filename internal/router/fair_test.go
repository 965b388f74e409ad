package router

import (
	"fmt"
	"strings"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
)

// fair asks for turns between senders.
func fair(kind string) *aetherv1.TopicFilter {
	return &aetherv1.TopicFilter{TopicPrefix: kind, Fair: true}
}

// Runtime rule 3: one sender floods, ten send a little; a slow reader that asked
// for turns gets all of the ten, and of the one what is left, and is told exactly
// how much it missed. Who asked for nothing gets it in order.
func TestFairSubscription(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Shared.RouteBytes, o.MaxPayload = 64<<10, 2000 })
	slow, plain := w.listener("slow", fair("ga")), w.listener("plain")
	noisy := w.agent("noisy", client(0))
	var quiet []*session
	for i := range 10 {
		quiet = append(quiet, w.agent(fmt.Sprint("quiet", i), client(0)))
	}
	text := strings.Repeat("x", 1000)
	got, lost := map[string]int{}, uint64(0)
	for range 30 {
		for range 90 {
			noisy.says("ga::w", "", text)
		}
		for _, q := range quiet {
			q.says("ga::w", "", text[:100])
		}
		w.settled()
		if slow.pump() { // less than comes
			for _, g := range slow.batch.Gaps {
				lost += g.Dropped
			}
			for _, m := range slow.queue {
				got[m.GetMsg().GetSourceTopic()]++
			}
			slow.queue = nil
		}
	}
	for slow.pump() {
		for _, g := range slow.batch.Gaps {
			lost += g.Dropped
		}
		for _, m := range slow.queue {
			got[m.GetMsg().GetSourceTopic()]++
		}
		slow.queue = nil
	}
	for _, q := range quiet {
		if got[q.name] != 30 {
			t.Errorf("%d of %s came", got[q.name], q.name)
		}
	}
	if n := got[noisy.name]; n == 0 || lost == 0 || n+int(lost) != 2700 {
		t.Errorf("%d of 2700 came of the one who floods, %d were lost", n, lost)
	}
	if w.r.routes.Bytes.Load() != 0 || w.r.routes.Principals.Load() != 0 || w.r.Fairness().Evicted[2].Load() != lost {
		t.Errorf("the counters say %d bytes, %d principals, %d evicted", w.r.routes.Bytes.Load(), w.r.routes.Principals.Load(), w.r.Fairness().Evicted[2].Load())
	}
	n := 0
	for plain.pump() {
	}
	for _, m := range plain.queue {
		if m.GetMsg() != nil {
			n++
		}
	}
	if n == 0 {
		t.Error("who asked for nothing gets nothing")
	}
}

// What waits when a subscription asks for turns, or for none any more, or takes
// something else, comes all the same, once, and before what is new.
func TestChangeKeepsWhatWaits(t *testing.T) {
	t.Parallel()
	w := setup(t)
	from := w.agent("from", client(0))
	l := w.listener("l")
	for i, f := range []*aetherv1.TopicFilter{nil, fair("ga"), only("ga", "a.#"), fair("ga"), only("ga", "a.#", "b"), nil} {
		if f != nil {
			l.sub.Filter(takes(t, f))
		} else {
			l.sub.Filter(nil)
		}
		from.says("ga::w", "a.b", fmt.Sprint(i))
		w.settled()
	}
	l.wants("0", "1", "2", "3", "4", "5")
	l.quiet()
	l.leave()
	if s := w.r.parts[0].targets["ga::w"].topic.audience; s.every != 1 || len(s.fair) != 0 || s.loose != 0 {
		t.Errorf("left: %+v", s)
	}
}

// Filters beyond the classes of a ring are matched one by one, with the same
// result.
func TestMoreFiltersThanClasses(t *testing.T) {
	t.Parallel()
	w := setup(t)
	from := w.agent("from", client(0))
	var list []*session
	for i := range maxFilterSets + 10 {
		list = append(list, w.listener(fmt.Sprint(i), only("ga", fmt.Sprint("s.", i), "all.#")))
	}
	from.says("ga::w", "s.3", "three")
	from.says("ga::w", fmt.Sprint("s.", maxFilterSets+5), "beyond")
	from.says("ga::w", "all.x", "all")
	w.settled()
	for i, l := range list {
		switch i {
		case 3:
			l.wants("three", "all")
		case maxFilterSets + 5:
			l.wants("beyond", "all")
		default:
			l.wants("all")
		}
		l.quiet()
	}
	for _, l := range list {
		l.leave()
	}
	if a := w.r.parts[0].targets["ga::w"].topic.audience; a.loose != 0 || a.every != 1 {
		t.Errorf("left: %+v", a)
	}
}

// Metrics take turns between their senders, whatever is asked for.
func TestMetricsAreFair(t *testing.T) {
	t.Parallel()
	w := setup(t)
	name := address.MetricReceiver().String()
	bridge := w.join(&acl.Principal{Kind: acl.MetricsBridge}, "mb::1", delivery.Options{}, Reads{Shared: []string{name}})
	bridge.sub.Filter(nil)
	if a := w.r.parts[0].targets[name].topic.audience; len(a.fair) != 1 || a.every != 0 {
		t.Errorf("it listens as %+v", a)
	}
}
