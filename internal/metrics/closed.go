package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// closed holds a child for every combination of a family's label values. It is
// read-only after it was made: no caller can add a series.
type closed[T any] struct {
	none  T
	byOne map[string]T
	byTwo map[[2]string]T
	sets  []map[string]bool
}

// get returns the child; a value from outside its set stands for "other". It
// takes as many values as the family has labels.
func (c *closed[T]) get(values ...string) T {
	switch len(c.sets) {
	case 0:
		return c.none
	case 1:
		return c.byOne[c.in(0, values[0])]
	default:
		return c.byTwo[[2]string{c.in(0, values[0]), c.in(1, values[1])}]
	}
}

func (c *closed[T]) in(label int, value string) string {
	if c.sets[label][value] {
		return value
	}
	return Other
}

func build[T any](f Family, child func(values ...string) T) *closed[T] {
	c := &closed[T]{byOne: map[string]T{}, byTwo: map[[2]string]T{}}
	for _, l := range f.Labels {
		set := map[string]bool{}
		for _, v := range l.Values {
			set[v] = true
		}
		if !slices.Contains(l.Values, Other) {
			panic("metrics: label " + l.Name + " has no value " + Other)
		}
		c.sets = append(c.sets, set)
	}
	switch len(f.Labels) {
	case 0:
		c.none = child()
	case 1:
		for _, v := range f.Labels[0].Values {
			c.byOne[v] = child(v)
		}
	case 2:
		for _, v := range f.Labels[0].Values {
			for _, w := range f.Labels[1].Values {
				c.byTwo[[2]string{v, w}] = child(v, w)
			}
		}
	default:
		panic("metrics: " + f.Name + " has more than two labels")
	}
	return c
}

func counters(r prometheus.Registerer, f Family) *closed[prometheus.Counter] {
	vec := prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.labelNames())
	r.MustRegister(vec)
	return build(f, func(values ...string) prometheus.Counter { return vec.WithLabelValues(values...) })
}

func gauges(r prometheus.Registerer, f Family) *closed[prometheus.Gauge] {
	vec := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: f.Name, Help: f.Help}, f.labelNames())
	r.MustRegister(vec)
	return build(f, func(values ...string) prometheus.Gauge { return vec.WithLabelValues(values...) })
}
