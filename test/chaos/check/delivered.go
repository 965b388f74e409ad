package check

import "slices"

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
	m.got = append(m.got, delivery{e.Who, e.Session, e.Gateway, e.Redelivered, e.At})
	if len(before) == 0 && m.stored {
		row.LongestWait = max(row.LongestWait, e.At-m.storedAt)
	}
	if e.Session == r.session {
		j.position(i, e, r, m)
	} else if r.session != "" && j.h.Fence > 0 && e.At-r.joined-j.held(e.Gateway, r.joined, e.At) > j.h.Fence {
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
		if len(before) == 0 {
			j.rise(i, e, r, m)
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
	if a.mode != shared && (e.Redelivered || j.noticedLate(e, before)) {
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

// noticedLate reports whether a delivery may be the first one, although others
// stand before it: events are written down by the receivers, each when it has
// come to it. While the frames of one whose session has ended are on their way,
// another one may have got the same again; if so, that was called a repeat, and
// the session was there before.
func (j *judge) noticedLate(e Event, before []delivery) bool {
	began, known := j.began[e.Session]
	return known && began < before[0].at && !slices.ContainsFunc(before, func(d delivery) bool {
		return !d.flagged || d.session == e.Session
	})
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
		j.suspect(Reordered, m, e.Who, i, "#%d came before it, and was sent %v after it", seq, sent-j.sentAt(m))
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
		j.suspect(Positions, m, e.Who, i, "its position %d is not above %d", e.Position, last)
		return
	}
	r.position[e.To] = e.Position
}
