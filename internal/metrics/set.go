package metrics

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/aether-gateway/gateway/internal/acl"
)

// Set is all metrics of one gateway. Its methods are safe for concurrent use;
// those that count do nothing on a nil Set. The zero value is not usable; see
// [New].
type Set struct {
	registry *prometheus.Registry

	sessions *closed[prometheus.Gauge]
	connects *closed[prometheus.Counter]
	ends     *closed[prometheus.Counter]
	ready    prometheus.Gauge
}

// New makes a Set with every series at zero, and the Go and process metrics
// beside it. version is the program's.
func New(version string) *Set {
	s := &Set{registry: prometheus.NewRegistry()}
	s.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.sessions = gauges(s.registry, famSessions)
	s.connects = counters(s.registry, famConnects)
	s.ends = counters(s.registry, famEnds)
	s.ready = gauges(s.registry, famReady).get()

	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: famBuild.Name, Help: famBuild.Help}, famBuild.labelNames())
	s.registry.MustRegister(info)
	info.WithLabelValues(version).Set(1)
	return s
}

// Watch makes the counts of the message path part of the metrics. read must be
// safe for concurrent use. It may be called once.
func (s *Set) Watch(read func() Counts) { s.registry.MustRegister(newCollector(read)) }

// Handler serves the metrics in Prometheus' format.
func (s *Set) Handler() http.Handler {
	return promhttp.HandlerFor(s.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// Connected counts an attempt to connect: reason is [OK], or the gRPC code
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

// Ready sets whether the gateway is ready.
func (s *Set) Ready(ready bool) {
	if s == nil {
		return
	}
	value := 0.0
	if ready {
		value = 1
	}
	s.ready.Set(value)
}
