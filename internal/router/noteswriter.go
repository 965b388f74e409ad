package router

import (
	"context"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// maxNotes is how many notes one statement stores.
const maxNotes = 1000

// notesWriter stores notes of absence: one statement at a time for all that
// wait, of all partitions.
type notesWriter struct {
	r    *Router
	wake chan struct{} // capacity 1
	down bool          // the last statement failed; of the goroutine
}

// askedNote is a note on its way to the store.
type askedNote struct {
	p *partition
	a *absence // nil for the second note of an event address
}

func (w *notesWriter) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *notesWriter) run(ctx context.Context) {
	for {
		for w.writeNotes(ctx) {
		}
		w.writeRaises(ctx)
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
	}
}

// collect takes what is to be noted. The position is the tail's (delivery rule
// C3): what waits will be stored behind it. A note is inclusive, and nothing
// lies at the last position that the tail has passed.
func (w *notesWriter) collect() (asked []askedNote, notes []store.Note) {
	for _, p := range w.r.parts {
		p.mu.Lock()
		add := func(a *absence, address string, position uint64, workspace string) {
			asked = append(asked, askedNote{p, a})
			notes = append(notes, store.Note{Address: address, Position: position, Workspace: workspace})
			if position == uint64(p.tailAt+1) {
				p.watchOwn(address, position) // nothing behind it has been shown
			}
		}
		n := min(len(p.absent.queue), maxNotes-len(asked))
		for _, a := range p.absent.queue[:max(n, 0)] {
			if p.absent.known[a.address] != a {
				continue // held meanwhile
			}
			position := uint64(p.tailAt + 1)
			if a.rewound {
				position = min(position, a.from)
			}
			add(a, a.address, position, a.workspace)
			if isEvent(a.address) {
				add(nil, anyEventKey(p.id), position, a.workspace)
			}
		}
		p.absent.queue = p.absent.queue[max(n, 0):]
		if len(p.absent.queue) == 0 {
			p.absent.queue = nil
		}
		p.mu.Unlock()
	}
	return asked, notes
}

// writeNotes stores a statement's worth of notes and lets go whoever waited for
// them. It reports false if there was nothing to do.
func (w *notesWriter) writeNotes(ctx context.Context) bool {
	asked, notes := w.collect()
	if len(asked) == 0 {
		return false
	}
	now := w.r.now() // not later than the note
	bounded, cancel := context.WithTimeout(ctx, w.r.noteTimeout)
	stored, err := w.r.positions.NoteAbsence(bounded, notes)
	cancel()
	w.tell(ctx, err, len(notes))
	for i, n := range asked {
		n.p.mu.Lock()
		// Only what is where we have put it is ours to raise.
		note := notes[i]
		n.p.ownNoted(note.Address, note.Position, err == nil && stored[i] == note.Position, now)
		if err != nil && n.a != nil {
			n.p.noteFailed(n.a)
		}
		n.p.mu.Unlock()
	}
	if err != nil {
		w.r.stats.NoteFailures.Add(1)
		return true
	}
	w.r.stats.Notes.Add(uint64(len(notes)))
	for i, n := range asked {
		if n.a == nil {
			continue
		}
		n.p.mu.Lock()
		n.p.noteStored(n.a, notes[i].Position, now)
		n.p.mu.Unlock()
	}
	return true
}

// tell logs the beginning and the end of an outage.
func (w *notesWriter) tell(ctx context.Context, err error, notes int) {
	switch {
	case err != nil && !w.down && ctx.Err() == nil:
		w.r.log.Warn("notes of absence cannot be stored; what is sent to absent receivers is refused", "notes", notes, "error", err)
	case err == nil && w.down:
		w.r.log.Info("notes of absence are stored again")
	}
	w.down = err != nil
}

// writeRaises raises notes. What fails is tried again with the router's clock.
func (w *notesWriter) writeRaises(ctx context.Context) {
	for _, p := range w.r.parts {
		p.mu.Lock()
		raises := p.absent.raises
		p.absent.raises = nil
		p.mu.Unlock()
		if len(raises) == 0 {
			continue
		}
		bounded, cancel := context.WithTimeout(ctx, w.r.noteTimeout)
		_, err := w.r.positions.RaiseNotes(bounded, raises)
		cancel()
		if err == nil {
			continue
		}
		p.mu.Lock()
		p.absent.raises = append(raises, p.absent.raises...)
		p.absent.raises = p.absent.raises[:min(len(p.absent.raises), maxRaises)]
		p.mu.Unlock()
	}
}

// Of a send's time ([Options.PublishTimeout]) the store gets two fifths for a
// statement, so that one that waits for a second has its answer in time.
func noteTimes(publish time.Duration) (timeout, limit time.Duration) {
	return publish * 2 / 5, publish * 4 / 5
}
