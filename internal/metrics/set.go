package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
)

// Set is all metrics of one gateway. Its methods are safe for concurrent use
// and do nothing on a nil Set. The zero value is not usable; see [New].
type Set struct {
	registry *prometheus.Registry

	sessions   *closed[prometheus.Gauge]
	connects   *closed[prometheus.Counter]
	ends       *closed[prometheus.Counter]
	sends      *closed[prometheus.Counter]
	stored     prometheus.Observer
	deliveries *closed[prometheus.Counter]
	acks       *closed[prometheus.Counter]
	gaps       *closed[prometheus.Counter]
	lost       *closed[prometheus.Counter]
	commits    *closed[prometheus.Counter]
	tails      *closed[prometheus.Gauge]
	reopens    *closed[prometheus.Counter]
	ready      prometheus.Gauge
}

// New makes a Set with every series at zero, and the Go and process metrics
// beside it. version is the program's.
func New(version string) *Set {
	s := &Set{registry: prometheus.NewRegistry()}
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	s.sessions = gauges(s.registry, famSessions)
	s.connects = counters(s.registry, famConnects)
	s.ends = counters(s.registry, famEnds)
	s.sends = counters(s.registry, famSends)
	s.deliveries = counters(s.registry, famDeliveries)
	s.acks = counters(s.registry, famAcks)
	s.gaps = counters(s.registry, famGaps)
	s.lost = counters(s.registry, famLost)
	s.commits = counters(s.registry, famCommits)
	s.tails = gauges(s.registry, famTails)
	s.reopens = counters(s.registry, famReopens)
	s.ready = gauges(s.registry, famReady).get()

	stored := prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: famStored.Name, Help: famStored.Help,
		Buckets: []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .25, .5, 1, 2.5, 5, 10},
	})
	s.registry.MustRegister(stored)
	s.stored = stored

	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: famBuild.Name, Help: famBuild.Help}, famBuild.labelNames())
	s.registry.MustRegister(info)
	info.WithLabelValues(version).Set(1)
	return s
}

// Handler serves the metrics in Prometheus' format.
func (s *Set) Handler() http.Handler {
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Connected counts an attempt to connect: reason is "ok", or the gRPC code
// with which it was refused, in snake case. kind is KindUnknown if the attempt
// ended before one was claimed.
func (s *Set) Connected(kind acl.Kind, reason string) {
	if s == nil {
		return
	}
	s.connects.get(kind.String(), reason).Inc()
	if reason == OK {
		s.sessions.get(kind.String()).Inc()
	}
}

// Ended counts the end of a session that was counted as connected.
func (s *Set) Ended(kind acl.Kind, reason string) {
	if s == nil {
		return
	}
	s.ends.get(kind.String(), reason).Inc()
	s.sessions.get(kind.String()).Dec()
}

// Sent counts the outcome of one send: reason is "stored" or "duplicate", or
// the error code of the refusal. prefix is 0 if the address did not parse.
func (s *Set) Sent(prefix address.Prefix, reason string) {
	if s == nil {
		return
	}
	s.sends.get(prefixLabel(prefix), reason).Inc()
}

// Stored observes how long the log took to confirm a message.
func (s *Set) Stored(took time.Duration) {
	if s == nil {
		return
	}
	s.stored.Observe(took.Seconds())
}

// Delivered counts a message handed to a session, by the way it came: "live",
// "tail" or "catch_up".
func (s *Set) Delivered(prefix address.Prefix, path string) {
	if s == nil {
		return
	}
	s.deliveries.get(prefixLabel(prefix), path).Inc()
}

// Acked counts what became of a delivery: "ack", "nack", "redelivered",
// "given_up" or "auto".
func (s *Set) Acked(outcome string) {
	if s == nil {
		return
	}
	s.acks.get(outcome).Inc()
}

// Gap counts a notice of missing messages, and how many it reported if that is
// known: "retention", "recreated", "lagged" or "damaged".
func (s *Set) Gap(reason string, messages uint64) {
	if s == nil {
		return
	}
	s.gaps.get(reason).Inc()
	s.lost.get(reason).Add(float64(messages))
}

// Committed counts written batches of positions: "ok" or "failed".
func (s *Set) Committed(outcome string) {
	if s == nil {
		return
	}
	s.commits.get(outcome).Inc()
}

// Tails sets how many partitions are read, and how many are not.
func (s *Set) Tails(up, down int) {
	if s == nil {
		return
	}
	s.tails.get("up").Set(float64(up))
	s.tails.get("down").Set(float64(down))
}

// Reopened counts connections to the log that were opened anew: "producer" or
// "consumer".
func (s *Set) Reopened(what string) {
	if s == nil {
		return
	}
	s.reopens.get(what).Inc()
}

// Ready sets whether the gateway is ready.
func (s *Set) Ready(ready bool) {
	if s == nil {
		return
	}
	if ready {
		s.ready.Set(1)
		return
	}
	s.ready.Set(0)
}

func prefixLabel(p address.Prefix) string {
	if name := p.String(); name != "" {
		return name
	}
	return Invalid
}
