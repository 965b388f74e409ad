package router

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Found is a message that was looked for by its id.
type Found struct {
	MessageID, Source, Topic, Workspace string
	// Position is its place in its partition.
	Position uint64
	// TimestampMS is when it was accepted; ExpiresAtMS when it is not delivered
	// any more, 0: never.
	TimestampMS, ExpiresAtMS int64
	// Late says that this gateway remembers that it came too late.
	Late bool
}

// maxFound bounds how many messages of one id are found: those of many senders
// and addresses.
const maxFound = 100

// FindRecent looks for a message id in what is kept in memory of the log: the
// last streams.recent_bytes of each partition. There is one search at a time: any
// client may ask, and all of that is read.
func (r *Router) FindRecent(id string) (list []Found) {
	r.finding.Lock()
	defer r.finding.Unlock()
	for _, p := range r.parts {
		p.mu.Lock()
		recent := slices.Clone(p.recent.entries)
		p.mu.Unlock()
		for _, e := range recent {
			if len(list) >= maxFound {
				return list
			}
			list = p.findIn(e, id, list)
		}
	}
	return list
}

func (p *partition) findIn(e streams.Entry, id string, list []Found) []Found {
	if !containsID(e.Data, id) {
		return list
	}
	scanEntry(e, 0, func(v *envelope.View, position int64) bool {
		if string(v.MessageID) == id && !p.copies.of(position).again {
			list = append(list, p.found(v, position))
		}
		return true
	})
	return list
}

// containsID is quicker than reading every envelope of an entry.
func containsID(data []byte, id string) bool { return bytes.Contains(data, []byte(id)) }

func (p *partition) found(v *envelope.View, position int64) Found {
	return Found{
		MessageID: string(v.MessageID), Source: string(v.Source), Topic: string(v.Topic), Workspace: string(v.Workspace),
		Position: uint64(position), TimestampMS: v.TimestampMS, ExpiresAtMS: v.ExpiresAtMS, Late: p.late.has(v.Origin, v.Seq),
	}
}

// idSlack is how long before and after the time in a drawn id its message may
// have been stamped and stored.
const idSlack = 30 * time.Second

// FindStored looks for a message id in the log, from a time on; without one,
// around the time that is in an id which a gateway drew. whole is false if
// there was neither, or not all could be read.
func (r *Router) FindStored(ctx context.Context, id string, since time.Time) (list []Found, whole bool, err error) {
	until := int64(0)
	if since.IsZero() {
		drawn, ok := drawnAt(id)
		if !ok {
			return nil, false, nil
		}
		since, until = drawn.Add(-idSlack), drawn.Add(2*idSlack).UnixMilli()
	}
	whole = true
	for _, p := range r.parts {
		all, err := p.scanSince(ctx, since, func(v *envelope.View, position int64) bool {
			if string(v.MessageID) == id && !p.copies.of(position).again {
				list = append(list, p.found(v, position))
			}
			return len(list) < maxFound && (until == 0 || v.TimestampMS <= until)
		})
		if err != nil && !errors.Is(err, errScanIdle) {
			return list, false, err
		}
		whole = whole && all
	}
	return list, whole, nil
}

// drawnAt returns the time in a message id that a gateway drew.
func drawnAt(id string) (time.Time, bool) {
	u, err := uuid.Parse(id)
	if err != nil || u.Version() != 7 {
		return time.Time{}, false
	}
	sec, nsec := u.Time().UnixTime()
	return time.Unix(sec, nsec), true
}

// State is what became of a message.
type State uint8

// The states, as in aether.v1.MessageStatus.
const (
	StateUnknown   State = State(aetherv1.MessageStatus_STATE_UNKNOWN)
	StateStored    State = State(aetherv1.MessageStatus_STATE_STORED)
	StateDelivered State = State(aetherv1.MessageStatus_STATE_DELIVERED)
	StateAcked     State = State(aetherv1.MessageStatus_STATE_ACKED)
	StateExpired   State = State(aetherv1.MessageStatus_STATE_EXPIRED)
	StateRefused   State = State(aetherv1.MessageStatus_STATE_REFUSED)
)

// Progress says how far this gateway's sessions have come with a stored
// message, and how often it was handed out and is still open. held is false if
// no session here reads its address.
func (r *Router) Progress(topic string, position uint64) (s State, deliveries uint32, held bool) {
	p := r.parts[r.placement.Of(topic)]
	p.mu.Lock()
	t := p.findString(topic)
	tailAt := p.tailAt
	p.mu.Unlock()
	switch {
	case t == nil:
		return StateUnknown, 0, false
	case t.inbox != nil:
		s, deliveries = t.inbox.progress(position, tailAt)
		return s, deliveries, true
	case t.workers != nil:
		s, deliveries = t.workers.progress(position)
		return s, deliveries, true
	}
	return StateStored, 0, true
}

func (in *inbox) progress(position uint64, tailAt int64) (State, uint32) {
	if in.Watermark(tailAt) >= int64(position) {
		return StateAcked, 0
	}
	if open, attempts := isOpen(in.Inbox, position); open {
		if attempts == 0 {
			return StateStored, 0
		}
		return StateDelivered, attempts
	}
	at := in.At()
	if in.Fed() == delivery.FedByTail {
		at = max(at, tailAt)
	}
	if int64(position) <= at {
		return StateAcked, 0 // done, behind others that are not
	}
	return StateStored, 0
}

// isOpen reports whether a message waits for its acknowledgement, and how often
// it was sent.
func isOpen(in *delivery.Inbox, position uint64) (open bool, attempts uint32) {
	for _, u := range in.Unfinished() {
		if u.Position == position {
			return true, uint32(u.Attempts)
		}
	}
	return false, 0
}

// progress knows of workers what they have open; what they have done is not
// kept.
func (g *group) progress(position uint64) (State, uint32) {
	g.mu.Lock()
	members := slices.Clone(g.members)
	g.mu.Unlock()
	for _, m := range members {
		if open, attempts := isOpen(m.Inbox, position); open && attempts > 0 {
			return StateDelivered, attempts
		}
	}
	return StateStored, 0
}

// CommittedUpTo returns the committed position of an exclusive address.
func (r *Router) CommittedUpTo(ctx context.Context, a address.Address) (position uint64, ok bool, err error) {
	return r.positions.Position(ctx, a.String(), a.String())
}

// Refusal is a send that was refused lately.
type Refusal struct {
	MessageID, Source, Topic string
	Code                     wireerr.Code
	Message                  string
	At                       time.Time
}

// maxRefusals bounds what a gateway remembers of refused sends; the oldest is
// forgotten.
const maxRefusals = 4096

// refusals remembers sends with a message id that were refused. The zero value
// is ready.
type refusals struct {
	mu   sync.Mutex
	ring []Refusal
	next int
}

func (r *refusals) add(source string, msg *aetherv1.SendMessage, err *wireerr.Error) {
	id := msg.GetMessageId()
	if id == "" || len(id) > maxMessageID {
		return
	}
	topic := msg.GetTargetTopic()
	if len(topic) > 4*address.MaxRunes {
		topic = ""
	}
	x := Refusal{MessageID: id, Source: source, Topic: strings.Clone(topic), Code: err.Code, Message: err.Message, At: time.Now()}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.ring) < maxRefusals {
		r.ring = append(r.ring, x)
		return
	}
	r.ring[r.next] = x
	r.next = (r.next + 1) % maxRefusals
}

// Refusals returns what this gateway remembers of refused sends with a message
// id, the latest last.
func (r *Router) Refusals(id string) (list []Refusal) {
	r.refusals.mu.Lock()
	defer r.refusals.mu.Unlock()
	for _, x := range r.refusals.ring {
		if x.MessageID == id {
			list = append(list, x)
		}
	}
	slices.SortStableFunc(list, func(a, b Refusal) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	return list
}

// maxLate bounds what a partition remembers of messages that came too late; the
// oldest is forgotten.
const maxLate = 4096

// tooLate remembers messages that were not delivered because their time was
// over. The zero value is ready.
type tooLate struct {
	mu    sync.Mutex
	at    map[[2]uint64]struct{} // by origin and number
	order [][2]uint64
	next  int
}

func (l *tooLate) add(origin, seq uint64) {
	key := [2]uint64{origin, seq}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at == nil {
		l.at = map[[2]uint64]struct{}{}
	}
	if _, known := l.at[key]; known {
		return
	}
	if len(l.order) < maxLate {
		l.order = append(l.order, key)
	} else {
		delete(l.at, l.order[l.next])
		l.order[l.next] = key
		l.next = (l.next + 1) % maxLate
	}
	l.at[key] = struct{}{}
}

func (l *tooLate) has(origin, seq uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, known := l.at[[2]uint64{origin, seq}]
	return known
}

// expired counts and remembers a message that came too late.
func (p *partition) expired(v *envelope.View) {
	p.r.stats.Expired.Add(1)
	p.late.add(v.Origin, v.Seq)
	p.refuseTracked(v, "expired")
}
