package router

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/streams"
)

// Ends are the log's ends as this gateway knew them at some moment.
type Ends []int64

// Ends returns how far each partition has been read by now. Who opens a session
// asks before it takes the lease: from the lease on, others publish to the
// address without a note of absence, so everything later is to be read.
func (r *Router) Ends() Ends {
	ends := make(Ends, len(r.parts))
	for i, p := range r.parts {
		p.mu.Lock()
		ends[i] = p.tailAt
		p.mu.Unlock()
	}
	return ends
}

// cleanWindow is for how long after a clean end something may have been
// published by who took the address for held: as long as its lease may outlive
// its session, and the directory be stale (delivery rules C5, C7); as long as
// what was stamped then may take to be stored; and what clocks may differ by.
func cleanWindow(publishTimeout time.Duration) time.Duration {
	return presence.TTL + presence.Staleness + publishTimeout + clockSkew
}

// clockSkew is how far the clocks of gateways may be apart.
const clockSkew = 2 * time.Second

// origin is what the store knows of where an inbox has to begin.
type origin struct {
	position uint64 // committed
	known    bool   // there is one
	mark     store.Mark
	end      int64 // of the log before the lease was taken
	own      bool  // the position is stored under this key
}

// leap is where a reading goes on that has passed the time up to which it has
// to see everything (delivery rule C5). It belongs to the feeder.
type leap struct {
	after int64 // the time in ms; 0: there is no leap
	to    int64 // the position up to which nothing is to be read
}

// begin asks how the last session on an address ended, and says that a new one
// has begun (delivery rule C5).
func (s *Subscription) begin(ctx context.Context, key string, p *partition) (origin, error) {
	mark, err := s.r.positions.BeginSession(ctx, store.Session{
		Identity: key, Address: key, Workspace: s.reads.Workspace, Epoch: s.reads.Lease.Epoch,
	})
	if err != nil {
		return origin{}, fmt.Errorf("begin a session on %s: %w", key, err)
	}
	position, known, err := s.goOn(ctx, key)
	if err != nil {
		return origin{}, fmt.Errorf("position of %s: %w", key, err)
	}
	return origin{position: position, known: known, own: known, mark: mark, end: s.ends[p.id]}, nil
}

// locate decides where an inbox begins. It is known to senders of this gateway
// by now, so that what they publish without a note comes later than the end
// that it may begin at; the note is asked for after that end was taken.
//
//	no position, no note   the end (delivery rule C4)
//	no position, a note    the note
//	a position             after it; if the session ended clean, only what was
//	                       stamped until its end could be known, then from the
//	                       note or the end on (C5)
func (s *Subscription) locate(ctx context.Context, in *inbox) error {
	o := &in.origin
	note, noted, err := s.r.positions.Note(ctx, in.Address)
	if err != nil {
		return fmt.Errorf("note of %s: %w", in.Address, err)
	}
	in.setNote(note, noted)
	before := int64(note) - 1
	if noted {
		in.p.suspectNote(in, before)
	}
	switch {
	case !o.known && noted:
		in.Jump(before)
	case !o.known:
		in.Jump(o.end)
	case !o.own && in.topic == anyEvent && noted && before < int64(o.position):
		in.Jump(before) // the others' positions say nothing of this mail
	case o.mark.Clean:
		to := o.end
		if noted {
			to = before
		}
		if to > int64(o.position) {
			in.leap = leap{after: o.mark.At.Add(s.r.cleanWindow).UnixMilli(), to: to}
		}
	}
	if o.own || noted && !isEvent(in.Address) {
		return nil
	}
	return s.settleStart(ctx, in)
}

// settleStart stores where a session begins that had no position. What comes to
// it from now on is not noted, so that without one the next session would begin
// at the end; where there is a note, that one begins at the note again. Of event
// addresses it also says to the other kind of engine that there was a session.
func (s *Subscription) settleStart(ctx context.Context, in *inbox) error {
	at := in.At()
	if at < 0 {
		return nil
	}
	err := s.r.positions.Commit(ctx, []store.Commit{{
		Identity: in.Identity, Address: in.Address, Position: uint64(at), Epoch: s.reads.Lease.Epoch,
	}})
	if err != nil {
		return fmt.Errorf("first position of %s: %w", in.Address, err)
	}
	in.SetSaved(at)
	return nil
}

func isEvent(address string) bool { return strings.HasPrefix(address, eventPrefix) }

// leapOver moves in on if everything that it has to read before its leap lies
// before e.
func (in *inbox) leapOver(e streams.Entry) {
	if in.leap.after == 0 || stampOf(e) <= in.leap.after {
		return
	}
	to := in.leap.to
	in.leap = leap{}
	in.Advance(to)
}

// stampOf returns the lowest time stamp in an entry, 0 if it has none.
func stampOf(e streams.Entry) int64 {
	var v envelope.View
	lowest := int64(0)
	for it := streams.Open(e.Data); it.Next(); {
		if v.Parse(it.Bytes()) == nil && v.TimestampMS > 0 && (lowest == 0 || v.TimestampMS < lowest) {
			lowest = v.TimestampMS
		}
	}
	return lowest
}
