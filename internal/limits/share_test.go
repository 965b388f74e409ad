package limits

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/aether-gateway/gateway/internal/presence"
)

// The parts of gateways that have heard of each other are the whole, and nobody
// gets less than it wants while another has more than it wants.
func TestSharesAreTheWhole(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		const rate = 1000
		wants := rapid.SliceOfN(rapid.Float64Range(0, rate), 1, 8).Draw(t, "wants")
		parts := make([]float64, len(wants))
		sum := 0.0
		for i := range wants {
			var others []presence.OtherUsage
			for j, w := range wants {
				if j != i {
					others = append(others, presence.OtherUsage{Wanted: [presence.Measures]float64{Messages: w}})
				}
			}
			parts[i] = share(rate, wants[i], others, Messages)
			sum += parts[i]
		}
		if math.Abs(sum-1) > 1e-9 {
			t.Fatalf("%v get %v, in all %v", wants, parts, sum)
		}
		for i := range wants {
			for j := range wants {
				if parts[i]*rate < wants[i]-1e-6 && parts[j] > parts[i]+1e-9 {
					t.Fatalf("%v wants more than %v, and %v gets %v", wants[i], parts[i]*rate, wants[j], parts[j]*rate)
				}
			}
		}
	})
}
