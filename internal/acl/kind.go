package acl

// Kind is what sort of participant a principal is. The zero value is no kind
// and is denied everything.
type Kind uint8

// The nine kinds.
const (
	KindUnknown Kind = iota
	Agent
	UniqueTask
	Task // non-unique: one server-assigned instance
	User
	WorkflowEngine
	MetricsBridge
	Orchestrator
	Service
	Bridge

	kindEnd
)

var kindNames = [kindEnd]string{
	KindUnknown:    "unknown",
	Agent:          "agent",
	UniqueTask:     "unique_task",
	Task:           "non_unique_task",
	User:           "user",
	WorkflowEngine: "workflow_engine",
	MetricsBridge:  "metrics_bridge",
	Orchestrator:   "orchestrator",
	Service:        "service",
	Bridge:         "bridge",
}

// plurals are for sentences.
var plurals = [kindEnd]string{
	KindUnknown:    "unknown principals",
	Agent:          "agents",
	UniqueTask:     "tasks",
	Task:           "tasks",
	User:           "users",
	WorkflowEngine: "workflow engines",
	MetricsBridge:  "metrics bridges",
	Orchestrator:   "orchestrators",
	Service:        "services",
	Bridge:         "bridges",
}

// Kinds lists the nine kinds. The caller owns the slice.
func Kinds() []Kind {
	all := make([]Kind, 0, kindEnd-1)
	for k := Agent; k < kindEnd; k++ {
		all = append(all, k)
	}
	return all
}

// String is the name of the kind on the wire, in logs and in metrics labels;
// "unknown" for anything that is not one of the nine.
func (k Kind) String() string {
	if k >= kindEnd {
		k = KindUnknown
	}
	return kindNames[k]
}

// Known reports whether k is one of the nine kinds.
func (k Kind) Known() bool { return k != KindUnknown && k < kindEnd }

// WorkspaceScoped reports whether a principal of this kind lives in one
// workspace at a time and reaches only that one: agents, tasks and users.
func (k Kind) WorkspaceScoped() bool {
	switch k {
	case Agent, UniqueTask, Task, User:
		return true
	}
	return false
}

func (k Kind) plural() string {
	if k >= kindEnd {
		k = KindUnknown
	}
	return plurals[k]
}
