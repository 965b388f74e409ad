package demo

import (
	"fmt"
	"strings"
	"unicode"
)

// Kind is what was observed.
type Kind string

// The kinds.
const (
	Scene     Kind = "scene"     // a scene begins; Text is its title
	Connected Kind = "connected" // Who has a session
	Left      Kind = "left"      // Who has gone
	Stored    Kind = "stored"    // Who's message Text to To got its receipt
	Received  Kind = "received"  // Who got Text from From
	Waited    Kind = "waited"    // the same, and it was there before Who connected
	Refused   Kind = "refused"   // Who's message to To was refused; Text is code and reason
	Good      Kind = "good"      // the scene's verdict: as promised
	Bad       Kind = "bad"       // the scene's verdict: not as promised
)

// Event is one observation.
type Event struct {
	Kind           Kind
	Who, From, To  string
	Text           string
	Took           string // how long it took, "" if that is of no interest
	Position       uint64 // in the log; 0 if the message came before it had one
	RedeliveryFlag bool
}

// Line is the event as it is told.
func (e Event) Line() string {
	took := ""
	if e.Took != "" {
		took = ", " + e.Took
	}
	where := ""
	if e.Position > 0 {
		where = fmt.Sprintf(", position %d", e.Position)
	}
	if e.RedeliveryFlag {
		where += ", delivered before"
	}
	switch e.Kind {
	case Scene:
		return "\n── " + clean(e.Text)
	case Connected:
		return fmt.Sprintf("   %s is connected", clean(e.Who))
	case Left:
		return fmt.Sprintf("   %s has gone", clean(e.Who))
	case Stored:
		return fmt.Sprintf("   %s → %s  %q  (stored%s)", clean(e.Who), clean(e.To), clean(e.Text), took)
	case Received:
		return fmt.Sprintf("   %s got %q from %s%s", clean(e.Who), clean(e.Text), clean(e.From), mention(took+where))
	case Waited:
		return fmt.Sprintf("   %s got %q from %s, which had waited%s", clean(e.Who), clean(e.Text), clean(e.From), mention(where))
	case Refused:
		return fmt.Sprintf("   %s → %s  refused: %s", clean(e.Who), clean(e.To), clean(e.Text))
	case Good:
		return "   ✓ " + clean(e.Text)
	case Bad:
		return "   ✗ " + clean(e.Text)
	}
	return "   " + clean(e.Text)
}

// mention puts remarks that begin with a comma in brackets.
func mention(s string) string {
	if s == "" {
		return ""
	}
	return "  (" + strings.TrimPrefix(s, ", ") + ")"
}

// clean keeps what others have written from steering the terminal.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r != ' ' && !unicode.IsPrint(r) {
			return '�'
		}
		return r
	}, s)
}
