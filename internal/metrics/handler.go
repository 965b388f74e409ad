package metrics

import (
	"math"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves the metrics in Prometheus' format, with those of Go and the
// process. read is called for each request and must be safe for concurrent
// use; version is the program's.
func Handler(version string, read func() Counts) http.Handler {
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: build.Name, Help: build.Help}, build.labels())
	info.WithLabelValues(version).Set(1)
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		newCollector(read), info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// collector makes metrics of the counts whenever it is asked.
type collector struct {
	read  func() Counts
	descs []*prometheus.Desc // parallel to table
}

var _ prometheus.Collector = (*collector)(nil)

func newCollector(read func() Counts) *collector {
	c := &collector{read: read}
	for _, m := range table {
		c.descs = append(c.descs, prometheus.NewDesc(m.Name, m.Help, m.labels(), nil))
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	now := c.read()
	for i, m := range table {
		kind := prometheus.CounterValue
		if m.Type == "gauge" {
			kind = prometheus.GaugeValue
		}
		for j, value := range m.read {
			var labels []string
			if m.Label != "" {
				labels = m.Values[j : j+1]
			}
			if v := value(&now); !math.IsNaN(v) {
				to <- prometheus.MustNewConstMetric(c.descs[i], kind, v, labels...)
			}
		}
	}
}
