package router

import (
	"context"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
)

// fenced reports whether others may take the session's lease while this
// gateway does not know it.
func fenced(l presence.Lease) bool { return l.Hold != nil && l.Hold.Fence() != nil }

// inherit reads what the predecessor left in the lease.
func (s *Subscription) inherit() {
	var err error
	if s.left, err = parseWatermark(s.reads.Watermark); err != nil {
		// Of another version: the store knows what was committed.
		s.r.log.Warn("what a predecessor left in its lease cannot be read", "identity", s.reads.Identity, "error", err)
	}
	for key, m := range s.left {
		if m.handed != none {
			h := s.r.repeats.get(key)
			h.position = max(h.position, m.handed)
			s.r.repeats.set(key, h)
		}
	}
}

// goOn returns the position from which the session goes on: what the
// predecessor left if that is exact, else the larger of that and the stored one
// (delivery rule L4). The session has begun in the store before, which takes
// nothing more of the predecessor (delivery rule C1); what that one has not
// stored is stored now.
func (s *Subscription) goOn(ctx context.Context, key string) (position uint64, known bool, err error) {
	position, known, err = s.r.positions.Position(ctx, key, key)
	if err != nil {
		return 0, false, err
	}
	m, ok := s.left[key]
	if !ok || m.position == none || known && !s.reads.Exact && uint64(m.position) <= position {
		return position, known, nil
	}
	stored := known && uint64(m.position) <= position
	position = uint64(m.position)
	if stored {
		return position, true, nil
	}
	err = s.r.positions.Commit(ctx, []store.Commit{{Identity: key, Address: key, Position: position, Epoch: s.reads.Lease.Epoch}})
	return position, true, err
}

// done returns what the session is done with, and what it was given beyond
// that.
func (s *Subscription) done() watermark {
	w := make(watermark, len(s.inboxes))
	for _, in := range s.inboxes {
		m := mark{position: in.watermark()}
		m.handed = in.Handed(m.position)
		if m.position != none || m.handed != none {
			w[in.Address] = m
		}
	}
	return w
}

// keepMark leaves the watermark in the lease's record, where a successor finds
// it if this gateway cannot be asked (delivery rule L4).
func (s *Subscription) keepMark() {
	if s.r.presence == nil || !fenced(s.reads.Lease) {
		return
	}
	for _, in := range s.inboxes {
		in.marked = in.Handed(none)
	}
	if b := s.done().encode(); b != nil {
		_ = s.r.presence.Mark(s.reads.Lease, b) // refuses only what is too large
	}
}

// handedMore reports whether the session was given more since its watermark was
// left in the lease.
func (s *Subscription) handedMore() bool {
	for _, in := range s.inboxes {
		if in.Handed(in.marked) != none {
			return true
		}
	}
	return false
}
