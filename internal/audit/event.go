package audit

import (
	"strings"
	"unicode/utf8"
)

// Kind sorts events.
type Kind string

// The kinds.
const (
	Connect  Kind = "connect"  // sessions that began and ended
	Refusal  Kind = "refusal"  // of connections and of sends
	Grant    Kind = "grant"    // authority that was given or taken
	Rule     Kind = "rule"     // changes of who may do what
	Operate  Kind = "operator" // what an operator did or looked into
	Task     Kind = "task"     // tasks that were created and how they ended
	Overflow Kind = "audit"    // how many events of a kind found no room
)

// Kinds lists all kinds.
func Kinds() []Kind { return []Kind{Connect, Refusal, Grant, Rule, Operate, Task, Overflow} }

// The outcomes.
const (
	OK      = "ok"
	Refused = "refused"
	Failed  = "failed"
)

// Event is something that happened. No field may hold a payload or a
// credential.
type Event struct {
	Kind Kind
	// Actor is who did it: an identity, the subject of an operator's
	// credential, or, of a connection that proved nothing, its host.
	Actor string
	// Action is what, in a few fixed words; Target on whom.
	Action, Target string
	// Outcome is one of [OK], [Refused] and [Failed]; Reason a code, such as
	// that of an error.
	Outcome, Reason string
	// Detail is a sentence for people.
	Detail string
}

// like is what events must have in common to be counted in one record. Targets
// and details of refusals are the refused one's choice, who could make a record
// of each; the first of them stands for all. What operators did differs in its
// details: where in somebody's mail.
func (e *Event) like() Event {
	key := *e
	if e.Kind != Operate {
		key.Detail = ""
	}
	if e.Kind == Refusal {
		key.Target = ""
	}
	return key
}

// maxText bounds each text of a record, in bytes.
const maxText = 512

// clean makes a text one that every engine can store.
func clean(s string) string {
	if len(s) > maxText {
		s = s[:maxText]
		for i := len(s) - 1; i >= len(s)-utf8.UTFMax; i-- {
			if utf8.RuneStart(s[i]) {
				if !utf8.FullRuneInString(s[i:]) {
					s = s[:i] // cut in the middle
				}
				break
			}
		}
		s = strings.Clone(s) // the whole of it would be kept as long as the record
	}
	s = strings.ToValidUTF8(s, "�")
	return strings.ReplaceAll(s, "\x00", "�")
}
