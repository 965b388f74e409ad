package router

import (
	"context"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/store"
)

// setNote remembers the note that was read: from now on the reading counts for
// its end.
func (in *inbox) setNote(position uint64, ok bool) {
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	in.note, in.noted = position, ok
	in.joined, in.joinedAt = in.Fed() == delivery.FedByTail, in.p.tailAt
}

// noteSpent reports whether the note can go: everything up to the tail was read
// after the note was, and what was committed is not below the end as it was
// then (delivery rule C6).
func (in *inbox) noteSpent() (note store.Note, ok bool) {
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	return store.Note{Address: in.Address, Position: in.note}, in.noted && in.joined && in.Saved() >= in.joinedAt
}

// owesCommit reports whether a commit is worth it for the sake of the note.
func (in *inbox) owesCommit() bool {
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	return in.noted && in.joined && in.Saved() < in.joinedAt && in.Watermark(in.p.tailAt) >= in.joinedAt
}

// deleteNotes removes the notes of those who have read what they stood for. One
// that has been changed meanwhile stays and is read anew.
func (r *Router) deleteNotes(ctx context.Context, subs []*Subscription) {
	var spent []*inbox
	var notes []store.Note
	for _, s := range subs {
		if s.reads.Lease.Lost() {
			continue
		}
		for _, in := range s.inboxes {
			if note, ok := in.noteSpent(); ok {
				spent, notes = append(spent, in), append(notes, note)
			}
		}
	}
	if len(notes) == 0 {
		return
	}
	n, err := r.positions.DeleteNotes(ctx, notes)
	if err != nil {
		r.log.Warn("notes of absence could not be deleted; it is tried again", "notes", len(notes), "error", err)
		return
	}
	if n == int64(len(notes)) {
		for _, in := range spent {
			in.setNote(0, false)
		}
		return
	}
	for _, in := range spent {
		note, noted, err := r.positions.Note(ctx, in.Address)
		if err != nil {
			return // the next round finds out
		}
		in.setNote(note, noted)
	}
}

// finals returns what a session that ends commits. Clean are those that end
// live and with everything done: what they have not been given lies behind the
// position, and was not published before the commit (delivery rule C5).
// A lost lease commits nothing (delivery rule L2).
func (s *Subscription) finals() (clean, other []store.Commit) {
	if s.reads.Lease.Lost() {
		return nil, nil
	}
	for _, in := range s.inboxes {
		position, live := in.lastWatermark()
		if _, lowering := in.lowering(); lowering || position == none {
			continue
		}
		c := store.Commit{Identity: in.Identity, Address: in.Address, Position: uint64(position), Epoch: s.reads.Lease.Epoch}
		if fresh := in.Committing(position, true); live {
			clean = append(clean, c)
		} else if fresh {
			other = append(other, c)
		}
	}
	return clean, other
}

// lastWatermark returns what an inbox that takes nothing more is done with, and
// whether that is all that the tail has shown.
func (in *inbox) lastWatermark() (position int64, clean bool) {
	in.p.mu.Lock()
	defer in.p.mu.Unlock()
	position = in.Watermark(in.p.tailAt)
	return position, in.Fed() == delivery.FedByTail && position == in.p.tailAt
}

// commitFinals stores the last positions. Nothing can be done about a failure:
// what is not committed comes again.
func (s *Subscription) commitFinals(ctx context.Context, clean, other []store.Commit) error {
	if len(clean) > 0 {
		if err := s.r.positions.CommitClean(ctx, clean); err != nil {
			return err
		}
	}
	if len(other) > 0 {
		return s.r.positions.Commit(ctx, other)
	}
	return nil
}
