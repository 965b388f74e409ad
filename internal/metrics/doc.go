// Package metrics counts what the gateway does, for Prometheus.
//
// Every label has a closed set of values (kind of principal, prefix of an
// address, outcome, reason): no identity, address or task is ever in a label,
// so that what clients do cannot make the number of series grow. A value from
// outside a set is counted as "other".
//
// Counting costs an atomic addition: children are looked up when a [Set] is
// made. One table, [Families], describes all metrics; the documentation page
// follows from it. The package decides nothing and knows no message.
package metrics
