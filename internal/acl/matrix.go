package acl

import "github.com/aether-gateway/gateway/internal/address"

// prefixSet has the bit 1<<p for each prefix p in it.
type prefixSet uint16

func prefixes(list ...address.Prefix) (s prefixSet) {
	for _, p := range list {
		s |= 1 << p
	}
	return s
}

func (s prefixSet) has(p address.Prefix) bool { return p != 0 && s&(1<<p) != 0 }

var (
	tasks  = prefixes(address.PrefixUniqueTask, address.PrefixTask, address.PrefixTaskBroadcast)
	agents = prefixes(address.PrefixAgent, address.PrefixAllAgents)
	users  = prefixes(address.PrefixUser, address.PrefixUserWorkspace, address.PrefixAllUsers)
	sinks  = prefixes(address.PrefixEvent, address.PrefixMetric)
)

// matrix says for each kind of sender what kinds of address it may send to. A
// kind that is not listed may send nowhere.
//
// pg is in no row but the bridge's: progress is written by the gateway itself,
// on behalf of those that report it. Nothing addresses an orchestrator, which
// has no address.
var matrix = [kindEnd]prefixSet{
	Agent:          agents | tasks | users | sinks,
	UniqueTask:     agents | tasks | users | sinks,
	Task:           agents | tasks | users | sinks,
	User:           agents | tasks | users,
	WorkflowEngine: agents | tasks | users | sinks,
	MetricsBridge:  0,
	Orchestrator:   agents | tasks,
	Service:        agents | tasks,
	Bridge:         prefixes(address.Prefixes()...),
}

// inMatrix reports whether a kind may send to a prefix at all. It is false for
// everything unknown.
func inMatrix(k Kind, p address.Prefix) bool {
	return k < kindEnd && matrix[k].has(p)
}
