package check

import (
	"slices"
	"time"
)

// delivered judges one frame with a message.
func (j *judge) delivered(i int, e Event) {
	r, m, a := j.readers[e.Who], j.messages[e.Message()], j.addresses[e.To]
	row := j.row(e.To)
	row.Delivered++
	switch {
	case m == nil:
		j.violate(Foreign, e.Message(), e.Who, i, "nobody has sent it")
		return
	case r == nil || a == nil || !slices.Contains(a.receivers, r):
		j.violate(Foreign, m.Message, e.Who, i, "it is not addressed to this receiver")
		return
	case a.mode == shared && r.Own == m.Sender:
		j.violate(Foreign, m.Message, e.Who, i, "a broadcast came back to its sender")
		return
	}
	before := m.got
	m.got = append(m.got, delivery{e.Who, e.Session, e.Gateway})
	if len(before) == 0 && m.stored {
		row.LongestWait = max(row.LongestWait, e.At-m.storedAt)
	}
	if e.Session == r.session {
		if a.mode != workers {
			j.position(i, e, r, m)
		}
	} else if r.session != "" && j.h.Fence > 0 && e.At > r.joined+j.h.Fence {
		j.violate(Stale, m.Message, e.Who, i, "session %s has taken the place of this one %v ago", r.session, e.At-r.joined)
	}
	switch {
	case e.Position == NoPosition || a.mode == shared:
	case m.position == NoPosition:
		m.position = e.Position
	case m.position != e.Position:
		j.violate(Duplicated, m.Message, e.Who, i, "it came from position %d of the log before, and now from %d", m.position, e.Position)
		return
	}
	switch a.mode {
	case exclusive:
		if len(before) == 0 {
			j.overtaken(i, e, m, j.first)
			return
		}
	case workers:
		// No order: what was on its way to a worker that leaves goes to another
		// one later, without a flag if it was never written.
		if len(before) == 0 {
			return
		}
	case shared:
		if !slices.ContainsFunc(before, func(d delivery) bool { return d.who == e.Who && d.session == e.Session }) {
			if slices.ContainsFunc(before, func(d delivery) bool { return d.who == e.Who }) {
				row.Repeats++ // a new session on a gateway that was behind the old one's
			}
			j.rise(i, e, r, m)
			return
		}
	}
	row.Repeats++
	j.repeat(i, e, a, m, before)
}

// rise judges the order within a session.
func (j *judge) rise(i int, e Event, r *reader, m *message) {
	if e.Session != r.session || e.Redelivered {
		return
	}
	j.overtaken(i, e, m, r.came)
}

// repeat judges a delivery that is not the first one.
func (j *judge) repeat(i int, e Event, a *address, m *message, before []delivery) {
	if e.Redelivered && a.mode != shared {
		return
	}
	row := j.row(m.To)
	row.UnflaggedRepeats++
	if j.again(m) {
		// A copy that was delivered live and surely not stored is followed by the
		// one that was: the receiver's memory is for these.
		row.RepeatsOfRepeatedSends++
		return
	}
	same := slices.ContainsFunc(before, func(d delivery) bool { return d.session == e.Session })
	known := slices.ContainsFunc(before, func(d delivery) bool { return d.gateway == e.Gateway })
	switch {
	case same:
		j.violate(Duplicated, m.Message, e.Who, i, "it came before in this session, and is not called a repeat")
	case a.mode == workers:
		j.violate(Duplicated, m.Message, e.Who, i, "worker %s had it before, and it is not called a repeat", before[0].who)
	case known:
		j.violate(Unflagged, m.Message, e.Who, i, "the same process delivered it before, and does not call it a repeat")
	}
}

// overtaken judges a first delivery by those of the same sender and address
// that came before it. Later sends may pass an earlier one that was sent again
// after them, or whose failure was known before they were made.
func (j *judge) overtaken(i int, e Event, m *message, all map[pair]*seqs) {
	p := pair{m.Sender, m.To}
	came := all[p]
	if came == nil {
		came = &seqs{}
		all[p] = came
	}
	came.list = append(came.list, m.Seq)
	if m.Seq > came.highest {
		came.highest = m.Seq
		return
	}
	for _, seq := range came.list {
		if seq <= m.Seq {
			continue
		}
		later := j.messages[Message{m.Sender, m.To, seq}]
		sent := j.sentAt(later)
		if m.attempts[len(m.attempts)-1] > later.attempts[0] || m.failed >= 0 && m.failed <= sent+j.h.Race {
			continue
		}
		j.violate(Reordered, m.Message, e.Who, i, "#%d came before it, and was sent %v after it", seq, sent-j.sentAt(m))
		return
	}
}

// position judges that known positions of one session and address rise.
func (j *judge) position(i int, e Event, r *reader, m *message) {
	if e.Position == NoPosition || e.Redelivered {
		return
	}
	last, known := r.position[e.To]
	if known && e.Position <= last {
		j.violate(Positions, m.Message, e.Who, i, "its position %d is not above %d", e.Position, last)
		return
	}
	r.position[e.To] = e.Position
}

// end judges what did not come.
func (j *judge) end() {
	var last time.Duration
	if n := len(j.h.Events); n > 0 {
		last = j.h.Events[n-1].At
	}
	for _, m := range j.order {
		row := j.row(m.To)
		switch {
		case m.stored:
			row.Stored++
			j.missing(m, last)
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

func (j *judge) missing(m *message, last time.Duration) {
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
			if r.session == "" || r.joined >= j.sentAt(m) || r.Own == m.Sender || r.gaps[""] || r.gaps[m.To] {
				continue
			}
			if !slices.ContainsFunc(m.got, func(d delivery) bool { return d.who == r.Name }) {
				lose(r.Name, "a session that was there before it and is there still did not get it")
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
	return slices.ContainsFunc(j.spans, func(s span) bool {
		return j.addresses[m.To].has(s.who) && s.from+settled <= j.sentAt(m) && (s.to < 0 || s.to >= m.storedAt+settled)
	})
}

func (a *address) has(who string) bool {
	return slices.ContainsFunc(a.receivers, func(r *reader) bool { return r.Name == who })
}

// forgotten reports whether all gateways that were there when the message was
// sent have ended soon after it.
func (j *judge) forgotten(m *message) bool {
	if len(j.processes) == 0 {
		return false
	}
	for _, p := range j.processes {
		if p.from <= j.sentAt(m) && (p.to < 0 || p.to > m.storedAt+j.h.Memory) {
			return false
		}
	}
	return true
}
