package router

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
)

// ErrNoMail says that an address keeps no mail: nobody alone reads it.
var ErrNoMail = errors.New("router: the address has no mailbox")

// ErrBeyond says that the log does not reach as far as a position: what is to
// come there must not count as done.
var ErrBeyond = errors.New("router: the position lies behind the end of the log")

// Mail is what is known of an address's mail, as the store has it: a session
// that is connected may be a second further.
type Mail struct {
	// Position is the committed one; Known says that there is one.
	Position uint64
	Known    bool
	// from is the first position that may be unread; clean says that behind a
	// session's clean end there is only what was stamped until leapAfter, or
	// lies from leapTo on.
	from               int64
	clean              bool
	leapAfter, leapMax int64
	empty              bool
}

// Mail returns what the store knows of an address's mail; [ErrNoMail] if it can
// have none.
func (r *Router) Mail(ctx context.Context, a address.Address) (Mail, error) {
	if a.Prefix().Mode() != address.Exclusive {
		return Mail{}, ErrNoMail
	}
	key := a.String()
	var m Mail
	var err error
	if m.Position, m.Known, err = r.positions.Position(ctx, key, key); err != nil {
		return m, fmt.Errorf("position of %s: %w", key, err)
	}
	note, noted, err := r.positions.Note(ctx, key)
	if err != nil {
		return m, fmt.Errorf("note of %s: %w", key, err)
	}
	mark, err := r.positions.Mark(ctx, key, key)
	if err != nil {
		return m, fmt.Errorf("mark of %s: %w", key, err)
	}
	// As a session would begin (delivery rules C4, C5).
	switch {
	case m.Known:
		m.from = int64(m.Position) + 1
	case noted:
		m.from = int64(note)
	default:
		m.empty = true
	}
	if m.Known && mark.Clean {
		m.clean, m.leapAfter, m.leapMax = true, mark.At.Add(r.cleanWindow).UnixMilli(), none
		if noted {
			m.leapMax = int64(note)
		}
	}
	return m, nil
}

// Unread is a message that waits for an address.
type Unread struct {
	Observed
	// TimestampMS is when it was sent, ExpiresAtMS when it is not delivered any
	// more; 0: never.
	TimestampMS, ExpiresAtMS int64
}

// unread shows what waits for an address, oldest first, until show returns
// false. whole is that of a scan.
func (r *Router) unread(ctx context.Context, a address.Address, m Mail, show visit) (whole bool, err error) {
	if m.empty {
		return true, nil
	}
	key := []byte(a.String())
	p := r.parts[r.placement.Of(a.String())]
	p.awaitOwn(ctx)
	from, leaped, ended := m.from, false, false
	wanted := func(v *envelope.View, position int64) bool {
		if !bytes.Equal(v.Topic, key) || p.copies.of(position).again {
			return true
		}
		ended = !show(v, position)
		return !ended
	}
	if m.clean {
		whole, err = p.scan(ctx, from, func(v *envelope.View, position int64) bool {
			if v.TimestampMS > m.leapAfter {
				leaped, from = true, position
				return false
			}
			return wanted(v, position)
		})
		switch {
		case err != nil || !whole || ended || !leaped:
			return whole, err
		case m.leapMax == none:
			return true, nil
		}
		from = max(from, m.leapMax)
	}
	return p.scan(ctx, from, wanted)
}

// ownPatience bounds how long an operator's call waits for what this gateway has
// sent by then.
const ownPatience = time.Second

// awaitOwn waits until the tail has shown what this gateway has sent by now: who
// has a receipt finds the message.
func (p *partition) awaitOwn(ctx context.Context) {
	p.mu.Lock()
	last := p.seq
	p.mu.Unlock()
	timeout := time.NewTimer(ownPatience)
	defer timeout.Stop()
	for {
		shown := p.nextEntry()
		p.mu.Lock()
		there := p.seen >= last
		p.mu.Unlock()
		if there {
			return
		}
		select {
		case <-shown:
		case <-timeout.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Peek returns up to limit messages that wait for an address behind a position,
// oldest first, and takes none of them. whole says that nothing was left out
// but what is beyond the limit: the log was read as far as is allowed otherwise.
func (r *Router) Peek(ctx context.Context, a address.Address, behind int64, limit int) (list []Unread, more, whole bool, err error) {
	m, err := r.Mail(ctx, a)
	if err != nil {
		return nil, false, false, err
	}
	if !m.empty && behind >= m.from {
		m.from, m.clean = behind+1, false
	}
	size := 0
	whole, err = r.unread(ctx, a, m, func(v *envelope.View, position int64) bool {
		if size += len(v.Raw()); len(list) >= limit || len(list) > 0 && size > maxObservedBytes {
			more = true
			return false
		}
		list = append(list, Unread{
			Observed:    Observed{Envelope: bytes.Clone(v.Raw()), Position: uint64(position)},
			TimestampMS: v.TimestampMS, ExpiresAtMS: v.ExpiresAtMS,
		})
		return true
	})
	return list, more, whole, err
}

// PassOver moves the committed position of an address up to a position, that one
// included, under a lease on the address: what lies there will not be
// delivered. Without a position everything that the log has now is passed over.
// [ErrBeyond] refuses one that the log does not reach. It returns which positions
// were passed over, both included; none if last is below first.
func (r *Router) PassOver(ctx context.Context, a address.Address, lease presence.Lease, to *uint64) (first, last uint64, err error) {
	end := r.endFor(a)
	if to != nil && *to >= end {
		return 1, 0, ErrBeyond
	}
	m, err := r.Mail(ctx, a)
	if err != nil {
		return 1, 0, err
	}
	first = uint64(m.from)
	key, err := r.holdMail(ctx, a, lease)
	if err != nil {
		return 1, 0, err
	}
	c := store.Commit{Identity: key, Address: key, Epoch: lease.Epoch}
	if to != nil {
		// Not clean: there may be more behind it that no note tells of.
		c.Position = *to
		return first, *to, r.positions.Commit(ctx, []store.Commit{c})
	}
	r.parts[r.placement.Of(key)].awaitOwn(ctx)
	if end = r.endFor(a); end == 0 {
		return 1, 0, nil // the log is empty
	}
	c.Position = end - 1
	return first, c.Position, r.positions.CommitClean(ctx, []store.Commit{c})
}

// endFor returns the position behind all that the log of an address is known to
// have.
func (r *Router) endFor(a address.Address) uint64 {
	p := r.parts[r.placement.Of(a.String())]
	p.mu.Lock()
	defer p.mu.Unlock()
	return uint64(p.tailAt + 1)
}

// Replay moves the committed position of an address down so that the next
// session gets what lies from a position on again, under a lease on the
// address. [ErrBeyond] refuses one that the log does not reach.
func (r *Router) Replay(ctx context.Context, a address.Address, lease presence.Lease, from uint64) error {
	if from > r.endFor(a) {
		return ErrBeyond
	}
	key, err := r.holdMail(ctx, a, lease)
	if err != nil {
		return err
	}
	if from == 0 {
		from = 1 // no message has position 0: a marker comes first
	}
	c := []store.Commit{{Identity: key, Address: key, Position: from - 1, Epoch: lease.Epoch}}
	if err := r.positions.RewindPositions(ctx, c); err != nil {
		return err
	}
	return r.positions.Commit(ctx, c) // where there was none
}

// holdMail begins a session of nobody on an address: nothing of an older lease
// counts from now on, and the last session's clean end says nothing any more.
func (r *Router) holdMail(ctx context.Context, a address.Address, lease presence.Lease) (key string, err error) {
	if a.Prefix().Mode() != address.Exclusive {
		return "", ErrNoMail
	}
	key = a.String()
	_, err = r.positions.BeginSession(ctx, store.Session{Identity: key, Address: key, Workspace: a.Workspace(), Epoch: lease.Epoch})
	if err != nil {
		return "", fmt.Errorf("begin a session on %s: %w", key, err)
	}
	if lease.Lost() {
		return "", errLost()
	}
	return key, nil
}

// PositionSince returns the position of the first message to an address that
// was sent at a time or later; ok is false if there is none.
func (r *Router) PositionSince(ctx context.Context, a address.Address, since time.Time) (position uint64, ok bool, err error) {
	if a.Prefix().Mode() != address.Exclusive {
		return 0, false, ErrNoMail
	}
	key := []byte(a.String())
	p := r.parts[r.placement.Of(a.String())]
	_, err = p.scanSince(ctx, since.Add(-clockSkew), func(v *envelope.View, at int64) bool {
		if !bytes.Equal(v.Topic, key) || v.TimestampMS < since.UnixMilli() {
			return true
		}
		position, ok = uint64(at), true
		return false
	})
	if errors.Is(err, errScanIdle) {
		err = nil // nothing is as new as that
	}
	return position, ok, err
}
