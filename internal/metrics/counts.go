package metrics

import "github.com/prometheus/client_golang/prometheus"

// Counts are what the message path has counted since it started. It counts by
// itself, in plain atomics, and is read when Prometheus asks.
type Counts struct {
	Stored, Duplicates, Refused, Failed uint64 // sends, by outcome
	Live, Shared                        uint64 // deliveries, by the way they took
	Redelivered, Expired, GivenUp       uint64 // deliveries, by what became of them
	CatchUps                            uint64
	PositionsCommitted, CommitFailures  uint64
	DamagedEntries, DamagedEnvelopes    uint64
}

type count struct {
	family Family
	// values are parallel to the values of the only label; one without a label.
	values []func(*Counts) uint64
}

var counts = []count{
	{
		Family{"aether_sends_total", "counter", "Messages that clients sent, by what became of them.", []Label{
			{"outcome", []string{"stored", "duplicate", "refused", "failed"}},
		}},
		[]func(*Counts) uint64{
			func(c *Counts) uint64 { return c.Stored },
			func(c *Counts) uint64 { return c.Duplicates },
			func(c *Counts) uint64 { return c.Refused },
			func(c *Counts) uint64 { return c.Failed },
		},
	},
	{
		Family{"aether_handovers_total", "counter", "Messages handed to sessions past the log: live, before they were stored, and of shared addresses.", []Label{
			{"path", []string{"live", "shared"}},
		}},
		[]func(*Counts) uint64{
			func(c *Counts) uint64 { return c.Live },
			func(c *Counts) uint64 { return c.Shared },
		},
	},
	{
		Family{"aether_deliveries_total", "counter", "Deliveries that did not end with the first acknowledgement.", []Label{
			{"outcome", []string{"redelivered", "expired", "given_up"}},
		}},
		[]func(*Counts) uint64{
			func(c *Counts) uint64 { return c.Redelivered },
			func(c *Counts) uint64 { return c.Expired },
			func(c *Counts) uint64 { return c.GivenUp },
		},
	},
	{
		Family{"aether_catch_ups_total", "counter", "Passes over the log for sessions that were behind.", nil},
		[]func(*Counts) uint64{func(c *Counts) uint64 { return c.CatchUps }},
	},
	{
		Family{"aether_positions_committed_total", "counter", "Positions written to the store.", nil},
		[]func(*Counts) uint64{func(c *Counts) uint64 { return c.PositionsCommitted }},
	},
	{
		Family{"aether_position_commit_failures_total", "counter", "Batches of positions that the store did not take.", nil},
		[]func(*Counts) uint64{func(c *Counts) uint64 { return c.CommitFailures }},
	},
	{
		Family{"aether_damaged_total", "counter", "What could not be read in the log.", []Label{
			{"what", []string{"entry", "envelope"}},
		}},
		[]func(*Counts) uint64{
			func(c *Counts) uint64 { return c.DamagedEntries },
			func(c *Counts) uint64 { return c.DamagedEnvelopes },
		},
	},
}

// collector reads the counts of the message path.
type collector struct {
	read  func() Counts
	descs []*prometheus.Desc
}

func newCollector(read func() Counts) *collector {
	c := &collector{read: read}
	for _, n := range counts {
		c.descs = append(c.descs, prometheus.NewDesc(n.family.Name, n.family.Help, n.family.labelNames(), nil))
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
	for i, n := range counts {
		if len(n.family.Labels) == 0 {
			to <- prometheus.MustNewConstMetric(c.descs[i], prometheus.CounterValue, float64(n.values[0](&now)))
			continue
		}
		for j, label := range n.family.Labels[0].Values {
			to <- prometheus.MustNewConstMetric(c.descs[i], prometheus.CounterValue, float64(n.values[j](&now)), label)
		}
	}
}
