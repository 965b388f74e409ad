package router

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

func TestMetricStamp(t *testing.T) {
	t.Parallel()
	metric := func(change func(*aetherv1.Metric)) []byte {
		m := &aetherv1.Metric{Entries: []*aetherv1.MetricEntry{{Name: "tokens", Qty: 1}}, Metadata: map[string]string{"workspace": "forged"}}
		change(m)
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	out, refused := stampMetric(metric(func(*aetherv1.Metric) {}), "w")
	var m aetherv1.Metric
	if refused != nil || proto.Unmarshal(out, &m) != nil || m.GetMetadata()["workspace"] != "w" {
		t.Fatalf("%v, %v", &m, refused)
	}
	for _, c := range []struct {
		name    string
		payload []byte
		want    string
	}{
		{"not a metric", []byte{0xff}, "ERR_METRIC_INVALID"},
		{"empty", metric(func(m *aetherv1.Metric) { m.Entries = nil }), "ERR_METRIC_EMPTY"},
		{"no name", metric(func(m *aetherv1.Metric) { m.Entries[0].Name = "" }), "ERR_METRIC_INVALID_ENTRY"},
		{"not a number", metric(func(m *aetherv1.Metric) { m.Entries[0].Qty = math.NaN() }), "ERR_METRIC_INVALID_ENTRY"},
		{"infinite", metric(func(m *aetherv1.Metric) { m.Entries[0].Qty = math.Inf(-1) }), "ERR_METRIC_INVALID_ENTRY"},
		{"too many", metric(func(m *aetherv1.Metric) {
			for range 1024 {
				m.Entries = append(m.Entries, m.Entries[0])
			}
		}), "ERR_METRIC_INVALID"},
		{"too much metadata", metric(func(m *aetherv1.Metric) {
			for i := range 64 {
				m.Metadata[fmt.Sprint(i)] = ""
			}
		}), "ERR_METRIC_INVALID"},
	} {
		if _, err := stampMetric(c.payload, "w"); err == nil || string(err.Code) != c.want {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestSubject(t *testing.T) {
	t.Parallel()
	for subject, ok := range map[string]bool{
		"": true, "a": true, "run.v1.delta": true, "a..b": false, ".a": false, "a.": false, ".": false,
		strings.Repeat("a", 256): true, strings.Repeat("a", 257): false,
		strings.Repeat("a.", 19) + "a": true, strings.Repeat("a.", 20) + "a": false,
	} {
		if err := checkSubject(subject); (err == nil) != ok {
			t.Errorf("%q: %v", subject, err)
		}
	}
}

func TestReceiptSameAsGenerated(t *testing.T) {
	t.Parallel()
	for _, duplicate := range []bool{false, true} {
		for _, request := range []string{"", "r", strings.Repeat("r", 200)} {
			var m aetherv1.DownstreamMessage
			if err := proto.Unmarshal(appendReceipt(nil, request, "m", duplicate), &m); err != nil {
				t.Fatal(err)
			}
			want := &aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_Receipt{Receipt: &aetherv1.SendReceipt{
				RequestId: request, MessageId: "m", Status: aetherv1.SendReceipt_STATUS_STORED, Duplicate: duplicate,
			}}}
			if !proto.Equal(&m, want) {
				t.Errorf("got %v", &m)
			}
		}
	}
}
