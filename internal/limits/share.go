package limits

import (
	"slices"

	"github.com/aether-gateway/gateway/internal/presence"
)

// share returns the part of a rate that one gateway may use, 0 to 1, if it and
// the others want what they said. Who wants little gets it; who wants more
// shares the rest evenly with others like it; what nobody wants is shared by
// all, so that whoever begins to send has something to begin with. The parts of
// all gateways are 1 together once they have heard of each other.
func share(rate, own float64, others []presence.OtherUsage, unit Unit) float64 {
	if len(others) == 0 || rate <= 0 {
		return 1
	}
	wants := make([]float64, 0, len(others)+1)
	for _, o := range others {
		wants = append(wants, o.Wanted[unit])
	}
	wants = append(wants, own)
	slices.Sort(wants)
	left, mine := rate, 0.0
	for i, want := range wants {
		got := min(want, left/float64(len(wants)-i))
		left -= got
		if want == own {
			mine = got // who wants the same gets the same
		}
	}
	return (mine + left/float64(len(wants))) / rate
}
