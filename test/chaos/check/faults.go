package check

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// heal ends the fault that began last of those that are called the same.
func (j *judge) heal(e Event) {
	for _, f := range slices.Backward(j.faults) {
		if f.to < 0 && f.fault.Who == e.Who && f.fault.Text == e.Text {
			f.to = e.At
			return
		}
	}
}

// held is for how long of a time faults held up what a gateway had for its
// clients: what came then may have been sent before.
func (j *judge) held(process string, from, to time.Duration) time.Duration {
	gateway := func(process string) string {
		name, _, _ := strings.Cut(process, "/")
		return name
	}
	sum := time.Duration(0)
	for _, f := range j.faults {
		if f.fault.Gateway == "" || gateway(f.fault.Gateway) != gateway(process) {
			continue
		}
		end := to
		if f.to >= 0 {
			end = min(end, f.to)
		}
		sum += max(0, end-max(from, f.from))
	}
	return sum
}

// suspect is a report on a worker that stands if nothing excuses it: what was
// on its way to another worker that leaves comes late, without a flag if it was
// never written. That it left may be noted after the message came.
type suspect struct {
	a         *address
	from, to  time.Duration
	violation Violation
}

// suspect reports an order that is broken, at once but for workers.
func (j *judge) suspect(rule Rule, m *message, who string, event int, format string, args ...any) {
	a := j.addresses[m.To]
	if a.mode != workers {
		j.violate(rule, m.Message, who, event, format, args...)
		return
	}
	j.suspects = append(j.suspects, suspect{
		a: a, from: j.sentAt(m), to: j.h.Events[event].At,
		violation: Violation{Rule: rule, Message: m.Message, Who: who, Event: event, Text: fmt.Sprintf(format, args...)},
	})
}

// confirm reports the suspects that nothing excuses.
func (j *judge) confirm() {
	for _, s := range j.suspects {
		if v := s.violation; j.calm(s.a, s.from, s.to) {
			j.violate(v.Rule, v.Message, v.Who, v.Event, "%s", v.Text)
		}
	}
}

// recovery is how long after a fault claims may still be sorted out.
const recovery = 15 * time.Second

// calm reports whether no worker left in a time and nothing was broken.
func (j *judge) calm(a *address, from, to time.Duration) bool {
	return !slices.ContainsFunc(j.faults, func(f *span) bool { return f.from <= to && (f.to < 0 || f.to+recovery >= from) }) &&
		!a.stayed(func(s *span) bool { return s.to >= 0 && s.to+settled >= from && s.to <= to+settled })
}
