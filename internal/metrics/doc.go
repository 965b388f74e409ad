// Package metrics counts what the gateway does, for Prometheus.
//
// Every label has a closed set of values (kind of principal, outcome, reason):
// no identity, address or task is ever in a label, so that what clients do
// cannot make the number of series grow. A value from outside a set is counted
// as "other".
//
// The message path counts by itself and is read when somebody asks ([Counts]);
// sessions are counted as they come and go. One table, [Families], describes
// all metrics; the documentation page follows from it. The package decides
// nothing and knows no message.
package metrics
