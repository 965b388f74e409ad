// Package ops tells operators and their machinery how a gateway is: alive,
// ready or not and why, and its metrics.
//
// It asks named checks that its user registers and knows nothing of what they
// ask. What it says on the public HTTP port is yes or no; reasons, which name
// hosts, are for the operators' listener only.
package ops
