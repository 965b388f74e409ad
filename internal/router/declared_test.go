package router

import (
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/wiring"
)

// Who asks for tracking without a mode gets what is declared of the address, also
// its time-out; who names one gets that.
func TestRuntime7DeclaredTracking(t *testing.T) {
	t.Parallel()
	declared := wiring.Defaults()
	declared.OnLag, declared.Ack = wiring.Disconnect, wiring.Ack{Mode: wiring.All, Tracking: wiring.Auto, MaxInFlight: 1, Timeout: 7 * time.Second}
	off := wiring.Defaults()
	off.Ack.Timeout = 9 * time.Second
	r := &Router{topics: wiring.NewTable([]wiring.Topic{
		{Prefix: address.PrefixAllAgents, Workspace: "w", Settings: declared}, {Prefix: address.PrefixAllAgents, Settings: off},
	})}
	for _, test := range []struct {
		to      string
		asked   *aetherv1.Tracking
		want    aetherv1.TrackingMode // unspecified: none
		timeout time.Duration
	}{
		{"ga::w", nil, 0, 0},
		{"ga::w", &aetherv1.Tracking{}, aetherv1.TrackingMode_TRACKING_MODE_ALL, 7 * time.Second},
		{"ga::w", &aetherv1.Tracking{TimeoutMs: 10}, aetherv1.TrackingMode_TRACKING_MODE_ALL, 10 * time.Millisecond},
		{"ga::w", &aetherv1.Tracking{Mode: aetherv1.TrackingMode_TRACKING_MODE_STORED}, 0, 0},
		{"ga::w", &aetherv1.Tracking{Mode: aetherv1.TrackingMode_TRACKING_MODE_FIRST}, aetherv1.TrackingMode_TRACKING_MODE_FIRST, 7 * time.Second},
		{"ga::v", &aetherv1.Tracking{}, 0, 0},
		{"ga::v", &aetherv1.Tracking{Mode: aetherv1.TrackingMode_TRACKING_MODE_FIRST}, aetherv1.TrackingMode_TRACKING_MODE_FIRST, 9 * time.Second},
		{"gu::w", &aetherv1.Tracking{Mode: aetherv1.TrackingMode_TRACKING_MODE_ALL}, aetherv1.TrackingMode_TRACKING_MODE_ALL, defaultTrackTimeout},
	} {
		to, err := address.Parse(test.to)
		if err != nil {
			t.Fatal(err)
		}
		got, refused := r.trackingOf(&aetherv1.SendMessage{RequestId: "r", Tracking: test.asked}, to)
		if refused != nil {
			t.Errorf("%s %v: %v", test.to, test.asked, refused)
			continue
		}
		if (got == nil) != (test.want == 0) || got != nil && (got.wireMode() != uint8(test.want) || got.timeout != test.timeout) {
			t.Errorf("%s %v: got %+v", test.to, test.asked, got)
		}
	}
}
