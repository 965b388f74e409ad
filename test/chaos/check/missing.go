package check

import (
	"slices"
	"time"
)

// end judges what did not come.
func (j *judge) end() {
	j.confirm()
	j.endTasks()
	for _, m := range j.order {
		row := j.row(m.To)
		switch {
		case m.stored:
			row.Stored++
			j.missing(m)
		case m.answered && !m.maybe:
			row.Refused++
		default:
			row.Unknown++
			if len(m.got) > 0 {
				row.UnknownDelivered++
			}
		}
	}
}

func (j *judge) missing(m *message) {
	a := j.addresses[m.To]
	if a == nil {
		return
	}
	lose := func(who, why string) { j.violate(Lost, m.Message, who, m.attempts[0], "it has a receipt, and %s", why) }
	came := "never came"
	if len(m.got) > 0 {
		came = "came, but was never finished with, and did not come again"
	}
	switch a.mode {
	case exclusive:
		if !m.processed {
			lose(a.receivers[0].Name, came)
		}
	case workers:
		switch {
		case m.processed:
		case !j.wanted(m) || j.forgotten(m):
			j.row(m.To).Excused++
		default:
			lose("(workers)", came)
		}
	case shared:
		for _, r := range a.receivers {
			s := r.at(j.sentAt(m))
			if s == nil || s.to >= 0 && s.to < m.storedAt+j.h.Reach || r.Own == m.Sender || s.gaps[""] || s.gaps[m.To] {
				continue
			}
			if !slices.ContainsFunc(m.got, func(d delivery) bool { return d.who == r.Name }) {
				lose(r.Name, "a session that was there before it and long after it did not get it")
			}
		}
	}
}

// settled is how long a worker's session must have been there, on both sides of
// a send, for the gateways to know of it.
const settled = time.Second

// wanted reports whether a worker was surely connected when the message was
// stored: nothing is kept for workers that come later.
func (j *judge) wanted(m *message) bool {
	return j.addresses[m.To].stayed(func(s *span) bool {
		return s.from+settled <= j.sentAt(m) && (s.to < 0 || s.to >= m.storedAt+settled)
	})
}

// stayed reports whether an address's receivers had such a session.
func (a *address) stayed(such func(*span) bool) bool {
	return slices.ContainsFunc(a.receivers, func(r *reader) bool { return slices.ContainsFunc(r.stays, such) })
}

// at returns the session that was there at a time; nil if none.
func (r *reader) at(t time.Duration) *span {
	for _, s := range slices.Backward(r.stays) {
		if s.from < t {
			return s
		}
	}
	return nil
}

// forgotten reports whether all gateways that were there when the message was
// sent have ended soon after it, and what they knew in common was lost.
func (j *judge) forgotten(m *message) bool {
	if !slices.ContainsFunc(j.faults, func(f *span) bool {
		return f.fault.Emptied && f.from+recovery >= j.sentAt(m) && f.from <= m.storedAt+j.h.Memory
	}) {
		return false
	}
	for _, p := range j.processes {
		if p.from <= j.sentAt(m) && (p.to < 0 || p.to > m.storedAt+j.h.Memory) {
			return false
		}
	}
	return true
}
