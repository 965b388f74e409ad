package acl

// Action is what a rule is about. The zero value is no action and is denied.
type Action uint8

// The actions.
const (
	ActionUnknown Action = iota
	ActionSend
	ActionObserve
	ActionKVRead
	ActionKVWrite
	ActionTaskManage
	ActionGrantIssue
	ActionStatusRead

	actionEnd
)

var actionNames = [actionEnd]string{
	ActionUnknown:    "unknown",
	ActionSend:       "send",
	ActionObserve:    "observe",
	ActionKVRead:     "kv:read",
	ActionKVWrite:    "kv:write",
	ActionTaskManage: "task:manage",
	ActionGrantIssue: "grant:issue",
	ActionStatusRead: "status:read",
}

// Actions lists the actions. The caller owns the slice.
func Actions() []Action {
	all := make([]Action, 0, actionEnd-1)
	for a := ActionSend; a < actionEnd; a++ {
		all = append(all, a)
	}
	return all
}

// ParseAction finds the action of that exact name.
func ParseAction(name string) (Action, bool) {
	for a := ActionSend; a < actionEnd; a++ {
		if actionNames[a] == name {
			return a, true
		}
	}
	return ActionUnknown, false
}

// String is the name of the action in rules, "unknown" for anything else.
func (a Action) String() string {
	if a >= actionEnd {
		a = ActionUnknown
	}
	return actionNames[a]
}

// Known reports whether a is one of the actions.
func (a Action) Known() bool { return a != ActionUnknown && a < actionEnd }

// Effect is what the rules of an operator say about an action.
type Effect uint8

// The effects. Of rules that contradict each other the denying one counts.
const (
	NoEffect Effect = iota // no rule matches
	Allow
	Deny
)

// String is the name of the effect in rules, "none" for no effect.
func (e Effect) String() string {
	switch e {
	case Allow:
		return "allow"
	case Deny:
		return "deny"
	}
	return "none"
}

// ParseEffect finds the effect of that exact name.
func ParseEffect(name string) (Effect, bool) {
	switch name {
	case "allow":
		return Allow, true
	case "deny":
		return Deny, true
	}
	return NoEffect, false
}
