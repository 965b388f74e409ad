package router

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

const (
	maxMetricEntries  = 1024
	maxMetricMetadata = 64
	metricWorkspace   = "workspace"
)

// stampMetric checks a METRIC payload and returns it with the verified
// workspace in its metadata, whatever the sender put there.
func stampMetric(payload []byte, workspace string) ([]byte, *wireerr.Error) {
	var m aetherv1.Metric
	if err := proto.Unmarshal(payload, &m); err != nil {
		return nil, wireerr.New(wireerr.MetricInvalid, "the payload is no Metric")
	}
	switch n := len(m.GetEntries()); {
	case n == 0:
		return nil, wireerr.New(wireerr.MetricEmpty, "the metric has no entries")
	case n > maxMetricEntries:
		return nil, wireerr.New(wireerr.MetricInvalid, "the metric has %d entries, %d are allowed", n, maxMetricEntries).
			With("limit", strconv.Itoa(maxMetricEntries))
	}
	for i, e := range m.GetEntries() {
		if e.GetName() == "" {
			return nil, wireerr.New(wireerr.MetricInvalidEntry, "entry %d has no name", i)
		}
		if math.IsNaN(e.GetQty()) || math.IsInf(e.GetQty(), 0) {
			return nil, wireerr.New(wireerr.MetricInvalidEntry, "entry %d has a quantity that is not finite", i)
		}
	}
	if n := len(m.GetMetadata()); n > maxMetricMetadata {
		return nil, wireerr.New(wireerr.MetricInvalid, "the metric has %d metadata keys, %d are allowed", n, maxMetricMetadata)
	}
	if m.Metadata == nil {
		m.Metadata = map[string]string{}
	}
	m.Metadata[metricWorkspace] = workspace
	// The same metric is the same bytes: retries are compared (P6).
	out, err := proto.MarshalOptions{Deterministic: true}.Marshal(&m)
	if err != nil {
		return nil, wireerr.New(wireerr.MetricInvalid, "the metric cannot be encoded")
	}
	return out, nil
}
