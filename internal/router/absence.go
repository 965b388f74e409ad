package router

import (
	"bytes"
	"strings"
	"time"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Bounds of what is known of absent addresses, for each partition.
const (
	// maxAbsent bounds the addresses that are remembered as noted; past it any
	// is forgotten, and noted again when it is sent to.
	maxAbsent = 1 << 16
	// maxAsked bounds the addresses whose notes are asked for at a time; who
	// sends to one more waits until there is room, and is refused with the others
	// if the store is away.
	maxAsked = maxAbsent / 2
	// maxRaises bounds the notes that are to be raised; past it one stays where
	// it is, which costs its reader some reading.
	maxRaises = 4096
	// noteAlone is how long a note is not repeated by a gateway without peers.
	noteAlone = time.Hour
	// raiseAfter is when a note whose message has not shown is raised to where
	// the tail is: the message was not stored.
	raiseAfter = 10 * time.Second
)

// absences is what a gateway knows of the addresses of a partition that nobody
// holds (delivery rule C3). Before the first publish to such an address a note
// of absence is stored; until it is, those who send to that address wait at its
// gate. Under the partition's lock.
type absences struct {
	known  map[string]*absence
	queue  []*absence         // to be noted
	asked  map[*absence]bool  // in the queue, or with the store; at most maxAsked
	full   gate               // of those who wait for room in it
	own    map[string]ownNote // may be raised; at most maxAbsent
	raises []store.Raise      // at most maxRaises
}

// absence is one address that nobody holds, as far as is known.
type absence struct {
	address, workspace string
	gate               gate
	// noted is when its note was last stored, zero if it was not. For how long
	// that counts says [noteValidFor].
	noted time.Time
	since time.Time // when it was asked for
	// The note is to be at from at the latest: it was relied upon in a log that
	// is another one from there on.
	rewound bool
	from    uint64
}

// ownNote is a note that is where this gateway has put it, and whose first
// message the tail has not shown.
type ownNote struct {
	position uint64
	since    time.Time // zero: the store has yet to say whether it is ours
}

// isMailbox reports whether an address has a mailbox, which is kept for one
// that is away.
func isMailbox(text string) bool {
	a, err := address.Parse(text)
	if err != nil {
		return false
	}
	switch a.Prefix() {
	case address.PrefixAgent, address.PrefixUniqueTask, address.PrefixTask, address.PrefixUser,
		address.PrefixService, address.PrefixBridge, address.PrefixEvent:
		return true
	}
	return false
}

// absenceGate returns the gate of an address whose absence has to be noted
// before anything is published to it, nil for all others. The partition's lock
// is held.
func (p *partition) absenceGate(topic, workspace string) *gate {
	if p.findString(topic) != nil || !isMailbox(topic) {
		return nil
	}
	a := p.absent.known[topic]
	if p.r.heldElsewhere(topic) {
		if a != nil {
			p.forgetAbsence(a)
		}
		return nil
	}
	age := p.r.noteValid // of the note, if there is one
	if a != nil && !a.noted.IsZero() {
		age = p.r.now().Sub(a.noted)
	}
	// Half of the time before it is needed, so that nobody has to wait.
	if age >= p.r.noteValid/2 && !p.absent.asked[a] && len(p.absent.asked) < maxAsked {
		a = p.askNote(a, topic, workspace)
	}
	switch {
	case age < p.r.noteValid:
		return nil
	case p.absent.asked[a]:
		return &a.gate
	default:
		return &p.absent.full
	}
}

// askNote asks for the note of an address; a is nil if nothing is known of it.
func (p *partition) askNote(a *absence, topic, workspace string) *absence {
	if a == nil {
		a = p.addAbsence(topic)
	}
	a.workspace, a.since = workspace, p.r.now()
	p.absent.asked[a] = true
	p.absent.queue = append(p.absent.queue, a)
	p.r.notes.signal()
	return a
}

// heldElsewhere reports whether another gateway surely holds an address. A
// lease of our own does not count: its session may not have said yet from where
// it reads.
func (r *Router) heldElsewhere(name string) bool {
	if r.presence == nil {
		return false
	}
	if held, certain := r.presence.Held(name); !held || !certain {
		return false // delivery rule C7
	}
	e, ok := r.presence.Lookup(name)
	return ok && e.Instance != r.presence.Self().ID
}

// noteValidFor is how long a note that was stored spares the next one. Others
// may hold the address meanwhile, be done, and delete the note, without this
// gateway noticing; who comes after them reads everything of this time (see
// [cleanWindow]).
func noteValidFor(p presence.Gateway) time.Duration {
	if p == nil {
		return noteAlone // whoever holds it holds it here
	}
	return presence.Staleness
}

func (p *partition) addAbsence(topic string) *absence {
	d := &p.absent
	if d.known == nil {
		d.known, d.asked, d.own = map[string]*absence{}, map[*absence]bool{}, map[string]ownNote{}
	}
	if len(d.known) >= maxAbsent {
		for _, other := range d.known {
			if !d.asked[other] {
				delete(d.known, other.address)
				break
			}
		}
	}
	a := &absence{address: topic}
	d.known[topic] = a
	return a
}

// forgetAbsence is called when an address is held again: it will be noted anew
// when it is left. Who waits need not any more.
func (p *partition) forgetAbsence(a *absence) {
	delete(p.absent.known, a.address)
	p.unask(a)
	p.open(&a.gate)
}

// unask takes an address off those whose notes are asked for, and lets others in.
func (p *partition) unask(a *absence) {
	delete(p.absent.asked, a)
	if len(p.absent.full.lines) > 0 && len(p.absent.asked) <= maxAsked/2 {
		p.open(&p.absent.full)
	}
}

// heldHere is called when a session reads an address here.
func (p *partition) heldHere(topic string) {
	if topic != anyEvent {
		if a := p.absent.known[topic]; a != nil {
			p.forgetAbsence(a)
		}
		return
	}
	for address, a := range p.absent.known {
		if strings.HasPrefix(address, eventPrefix) {
			p.forgetAbsence(a)
		}
	}
}

// noteStored is called when the note of an address is stored, not behind a
// position. The lock is held.
func (p *partition) noteStored(a *absence, position uint64, now time.Time) {
	switch {
	case p.absent.known[a.address] != a:
		return // held meanwhile
	case a.rewound && position > a.from:
		p.askNote(a, a.address, a.workspace)
		return
	}
	a.noted, a.rewound = now, false
	p.unask(a)
	p.open(&a.gate)
}

// renote is called when the log is another one from a position on (delivery rule
// C2): notes of the old one say nothing of what is sent since. What was sent
// before this was known is behind the notes that are asked for now.
func (p *partition) renote(from uint64) {
	clear(p.absent.own)
	p.absent.raises = nil
	for _, a := range p.absent.known {
		a.noted, a.rewound, a.from = time.Time{}, true, from
		if !p.absent.asked[a] && len(p.absent.asked) < maxAsked {
			p.askNote(a, a.address, a.workspace)
		}
	}
}

// noteFailed is called when it could not be stored.
func (p *partition) noteFailed(a *absence) {
	delete(p.absent.asked, a)
	p.refuse(&a.gate, errNote())
	p.refuse(&p.absent.full, errNote())
}

func errNote() *wireerr.Error {
	return wireerr.New(wireerr.Unavailable,
		"nobody is connected under this address, and that mail waits for it cannot be noted now; the message is not stored")
}

// watchOwn is called when a note sets out for the store: what the tail shows from
// now on lies behind it, whoever wrote that, and may be its first message.
func (p *partition) watchOwn(address string, position uint64) {
	if _, ok := p.absent.own[address]; !ok && len(p.absent.own) < maxAbsent {
		p.absent.own[address] = ownNote{position: position}
	}
}

// ownNoted is called when it is known whether the note is where this gateway has
// put it. If a message of the address was shown meanwhile it is not watched any
// more, and stays: raised later it would pass that message over.
func (p *partition) ownNoted(address string, position uint64, ours bool, now time.Time) {
	n, watched := p.absent.own[address]
	switch {
	case watched && ours:
		p.absent.own[address] = ownNote{position, now}
	case watched && n.since.IsZero():
		delete(p.absent.own, address)
	}
}

// sweepAbsences looks after what no event moves. The lock is held.
func (p *partition) sweepAbsences(now time.Time) {
	for a := range p.absent.asked {
		if now.Sub(a.since) > p.r.noteLimit {
			p.refuse(&a.gate, errNote()) // the store does not even fail
			p.refuse(&p.absent.full, errNote())
		}
	}
	if len(p.absent.raises) > 0 {
		p.r.notes.signal()
	}
	end := uint64(p.tailAt + 1)
	for address, n := range p.absent.own {
		if !n.since.IsZero() && now.Sub(n.since) > raiseAfter && len(p.absent.raises) < maxRaises {
			delete(p.absent.own, address)
			p.absent.raises = append(p.absent.raises, store.Raise{Address: address, From: n.position, To: end})
		}
	}
}

// tidyAbsences forgets notes that do not count any more.
func (p *partition) tidyAbsences(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for address, a := range p.absent.known {
		if !p.absent.asked[a] && now.Sub(a.noted) > p.r.noteValid {
			delete(p.absent.known, address)
		}
	}
}

// shownTo raises the note of an address whose first message the tail has shown,
// if this gateway has put it where it is (delivery rule C3).
func (p *partition) shownTo(topic []byte, position int64) {
	if n, ok := p.absent.own[string(topic)]; ok {
		p.raise(string(topic), n, position)
	}
	if bytes.HasPrefix(topic, eventPrefixBytes) {
		key := anyEventKey(p.id)
		if n, ok := p.absent.own[key]; ok {
			p.raise(key, n, position)
		}
	}
}

func (p *partition) raise(address string, n ownNote, position int64) {
	if uint64(position) < n.position {
		return
	}
	delete(p.absent.own, address)
	if n.since.IsZero() || uint64(position) == n.position || len(p.absent.raises) >= maxRaises {
		return
	}
	p.absent.raises = append(p.absent.raises, store.Raise{Address: address, From: n.position, To: uint64(position)})
	p.r.notes.signal()
}
