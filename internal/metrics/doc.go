// Package metrics shows what the gateway counts to Prometheus.
//
// The parts of the gateway count by themselves; this package reads them when
// somebody asks ([Counts]). Every label has a closed set of values: no
// identity, address or task is ever in a label, so that what clients do cannot
// make the number of series grow. One table, [Families], describes all
// metrics; the documentation page follows from it. The package decides nothing
// and knows no other package of ours.
package metrics
