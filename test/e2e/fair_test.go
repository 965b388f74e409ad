package e2e

import (
	"fmt"
	"strings"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// fairly asks for turns between the senders of a kind of address.
func fairly(kind string) option {
	return func(i *aetherv1.InitConnection) {
		i.Delivery.Filters = append(i.Delivery.Filters, &aetherv1.TopicFilter{TopicPrefix: kind, Fair: true})
	}
}

// A reader that asked for turns and does not keep up with one who floods gets all
// that the others send, before the rest of the flood, and is told exactly how
// much of the flood it has missed.
func testFair(t *testing.T, g *gateway) {
	const flood, others, each = 1200, 5, 10
	ws := workspace(t)
	topic := "ga::" + ws
	slow := connect(t, g, agent(ws, "i", "slow"), auto, fairly("ga"))
	noisy := connect(t, g, user(ws, "w", ws))
	list := numbered("n", 1, flood)
	for i := range list {
		list[i] += " " + strings.Repeat("x", 4000)
	}
	noisy.stored(topic, list...)
	for i := range others {
		connect(t, g, agent(ws, "i", fmt.Sprint("quiet", i)), client(1)).stored(topic, numbered("q", 1, each)...)
	}
	got, told, flooded := map[string]int{}, 0, 0
	last := 0 // of the flood, before the last of the others
	for len(got) < others || got[noisy.name()]+told < flood {
		frame, err := slow.await(func(m *down) bool { return m.GetMsg() != nil || m.GetGap() != nil })
		check(t, err)
		if gap := frame.GetGap(); gap != nil {
			if gap.GetReason() != aetherv1.HistoryGap_REASON_LAGGED || gap.GetTopic() != topic {
				t.Errorf("the gap is %v", gap)
			}
			told += int(gap.GetDropped())
			continue
		}
		from := frame.GetMsg().GetSourceTopic()
		got[from]++
		if from == noisy.name() {
			flooded++
		} else {
			last = flooded
		}
	}
	if told == 0 || got[noisy.name()]+told != flood {
		t.Errorf("%d came of the flood, %d were told to be lost, of %d", got[noisy.name()], told, flood)
	}
	for from, n := range got {
		if from != noisy.name() && n != each {
			t.Errorf("%d came of %s, want %d", n, from, each)
		}
	}
	if after := flooded - last; after < 100 {
		t.Errorf("the others waited for all of the flood but %d", after)
	}
}
