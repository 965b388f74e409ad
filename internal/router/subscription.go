package router

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/store"
)

// GapReason says why messages may be missing.
type GapReason uint8

// The reasons, as in aether.v1.HistoryGap.
const (
	GapRetention GapReason = 1
	GapLagged    GapReason = 2
	GapRecreated GapReason = 3
	GapDamaged   GapReason = 4
)

// Gap is a hole in what a session gets of an address.
type Gap struct {
	Topic        string
	Reason       GapReason
	FirstMissing uint64
	HasFirst     bool
}

// Reads is what a session is subscribed to.
type Reads struct {
	// Exclusive addresses belong to this session alone; each has a position
	// that is kept under its own name.
	Exclusive []string
	// Shared addresses reach it from now on.
	Shared []string
	// Workers is the address whose messages it competes for; may be empty.
	Workers string
	// Events are the workspaces whose event addresses it reads.
	Events acl.WorkspaceSet
	// Identity is the session's identity string; its own broadcasts are
	// recognised by it.
	Identity string
	// Workspace is whose quota counts what is kept of the session, and where the
	// session is: progress of other workspaces is not for it. Anywhere says that
	// it is in none, and may get what is addressed to it from all.
	Workspace string
	Anywhere  bool
	// Ends are the log's ends before its lease was taken ([Router.Ends]); nil
	// is now.
	Ends Ends
	// Echo asks for its own broadcasts.
	Echo bool
	// Filters are what it takes of all that; [Subscription.Filter] changes them.
	Filters *Filters
	// Observer is who observes, if the filters ask for that.
	Observer acl.Principal
	// Lease is what it acts under: what is lost commits nothing more.
	Lease presence.Lease
	// Watermark is what its predecessor left, if it took the lease over; Exact
	// says that the predecessor had stopped before that (delivery rule L4).
	Watermark []byte
	Exact     bool
	// Gap is told what is missing. It must not block.
	Gap func(Gap)
}

// Subscription is the receiving half of a session.
type Subscription struct {
	r       *Router
	box     *delivery.Mailbox
	reads   Reads
	ends    Ends
	began   time.Time
	left    watermark // by the predecessor
	inboxes []*inbox
	listens []listening
	worker  *member
	watches []*watcher // by whom it observes; one for each partition, or none
	notices *addressee // nil: nobody can address progress to it
	again   *backlog   // nacked deliveries that are to come again; at most the ledger's size

	dyingMu sync.Mutex
	dying   []uint64 // deliveries on their way to the dead-letter log; of the ledger
}

type listening struct {
	p *partition
	l *listener
}

// Subscribe makes all subscriptions or none. Deliveries go to box from now
// on. The caller must call [Subscription.Leave].
func (r *Router) Subscribe(ctx context.Context, box *delivery.Mailbox, reads Reads) (*Subscription, error) {
	s := &Subscription{r: r, box: box, reads: reads, ends: reads.Ends, began: r.now(), again: newBacklog(r, nil)}
	if s.ends == nil {
		s.ends = r.Ends()
	}
	s.inherit()
	for _, address := range reads.Exclusive {
		if err := s.open(ctx, address); err != nil {
			return nil, err
		}
	}
	if err := s.openEvents(ctx); err != nil {
		return nil, err
	}
	for _, in := range s.inboxes {
		if err := in.p.attach(in); err != nil {
			s.detach()
			return nil, err
		}
	}
	for _, in := range s.inboxes {
		if err := s.locate(ctx, in); err != nil {
			s.detach()
			return nil, err
		}
	}
	for _, name := range reads.Shared {
		p := r.parts[r.placement.Of(name)]
		l := s.listener(name)
		p.listen(name, l)
		s.listens = append(s.listens, listening{p, l})
	}
	if reads.Workers != "" {
		p := r.parts[r.placement.Of(reads.Workers)]
		s.worker = &member{Inbox: box.NewInbox(reads.Identity, reads.Workers, 0, false)}
		s.worker.Owner, s.worker.Worker = s.worker, true
		s.worker.Now, s.worker.Expired = r.nowMS, p.expired
		s.worker.Void = r.voidAt(reads.Workers)
		s.worker.Ballot = p.ballot
		p.work(reads.Workers, s.worker)
	}
	s.beAddressed(reads.Workspace)
	s.watch(reads.Filters)
	r.register(s)
	for _, in := range s.inboxes {
		in.p.mu.Lock()
		in.p.startReading(in)
		in.p.mu.Unlock()
	}
	return s, nil
}

// listener is what the session hears a shared address by.
func (s *Subscription) listener(name string) *listener {
	return newListener(name, s.box, &s.reads)
}

// open adds the inbox of one exclusive address, at its committed position.
func (s *Subscription) open(ctx context.Context, address string) error {
	p := s.r.parts[s.r.placement.Of(address)]
	o, err := s.begin(ctx, address, p)
	if err != nil {
		return err
	}
	s.add(p, address, address, o)
	return nil
}

func (s *Subscription) add(p *partition, topic, key string, o origin) *inbox {
	in := &inbox{Inbox: s.box.NewInbox(key, key, o.position, o.known), p: p, sub: s, topic: topic, hash: maphash.String(hashSeed, topic), origin: o, marked: none}
	in.Owner = in
	in.Now, in.Expired = s.r.nowMS, p.expired
	in.Void = s.r.voidAt(topic)
	in.Ballot = p.ballot
	in.Narrow(p.unwanted(s.reads.Filters.of(topic)))
	earlier := s.r.repeats.get(key)
	in.Repeats, in.RepeatsSeq = earlier.position, earlier.seq
	in.target = target{inbox: in}
	s.inboxes = append(s.inboxes, in)
	return in
}

// anyEvent is the key under which an engine that reads every event address
// keeps its position in each partition.
const anyEvent = eventPrefix + "*"

func anyEventKey(partition int) string { return fmt.Sprintf("%s/%d", anyEvent, partition) }

// openEvents adds the workflow engine's inboxes. Positions belong to the
// event addresses. An engine for all workspaces reads each partition as a
// whole and keeps one position in it; both kinds heed each other's.
func (s *Subscription) openEvents(ctx context.Context) error {
	set := s.reads.Events
	if set.IsEmpty() {
		return nil
	}
	rows, err := s.r.positions.PositionsUnder(ctx, eventPrefix)
	if err != nil {
		return fmt.Errorf("positions of event addresses: %w", err)
	}
	at := map[string]uint64{}
	for _, row := range rows {
		at[row.Address] = row.Position
	}
	if !set.IsAll() {
		for _, ws := range set.Names() {
			if err := s.openEvent(ctx, eventPrefix+ws, at); err != nil {
				return err
			}
		}
		return nil
	}
	for _, p := range s.r.parts {
		if err := s.openAnyEvent(ctx, p, at); err != nil {
			return err
		}
	}
	return nil
}

// openEvent adds the inbox of one event address. How its last session ended
// says nothing if the other kind of engine has read it since.
func (s *Subscription) openEvent(ctx context.Context, topic string, at map[string]uint64) error {
	p := s.r.parts[s.r.placement.Of(topic)]
	o, err := s.begin(ctx, topic, p)
	if err != nil {
		return err
	}
	if all, ok := at[anyEventKey(p.id)]; ok {
		o.mark = store.Mark{}
		if !o.known || all > o.position {
			o.position, o.known = all, true
		}
	}
	s.add(p, topic, topic, o)
	return nil
}

// openAnyEvent adds the inbox of all event addresses of a partition. Without a
// position of its own it begins where the other kind of engine is least far.
func (s *Subscription) openAnyEvent(ctx context.Context, p *partition, at map[string]uint64) error {
	key := anyEventKey(p.id)
	o, err := s.begin(ctx, key, p)
	if err != nil {
		return err
	}
	for topic, position := range at {
		if strings.HasPrefix(topic, anyEvent) || s.r.placement.Of(topic) != p.id {
			continue
		}
		o.mark = store.Mark{}
		if !o.own && (!o.known || position < o.position) {
			o.position, o.known = position, true
		}
	}
	in := s.add(p, anyEvent, key, o)
	in.Skip = func(topic []byte, position uint64) bool {
		done, ok := at[string(topic)]
		return ok && position <= done
	}
	return nil
}

// ErrTaken is returned by [Router.Subscribe] while another session of this
// gateway reads an exclusive address: one that has lost its lease and is about
// to end.
var ErrTaken = errors.New("router: the address is read by another session")

// attach makes the inbox known to senders and to the tail.
func (p *partition) attach(in *inbox) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case in.topic == anyEvent && p.wild == nil:
		p.wild = in
	case in.topic != anyEvent && p.targets[in.topic] == nil:
		p.targets[in.topic] = &in.target
	default:
		return ErrTaken
	}
	if in.At() > p.tailAt {
		p.suspectEnd(in)
	}
	p.heldHere(in.topic)
	return nil
}

func (p *partition) detach(in *inbox) {
	p.mu.Lock()
	if p.wild == in {
		p.wild = nil
	}
	if t := p.targets[in.topic]; t != nil && t.inbox == in {
		delete(p.targets, in.topic)
	}
	p.forgetSuspect(in)
	for i, other := range p.holding {
		if other == in {
			p.holding = append(p.holding[:i], p.holding[i+1:]...)
			break
		}
	}
	p.mu.Unlock()
	p.reader.remove(in)
}

func (s *Subscription) detach() {
	for _, in := range s.inboxes {
		in.p.detach(in)
	}
}

func (s *Subscription) gap(g Gap) {
	if s.reads.Gap != nil {
		s.reads.Gap(g)
	}
}

// leaveTimeout is how long a session that ends waits for the tail to show
// what it was given live (delivery rule S7); hurriedTimeout if another waits
// for its place.
const (
	leaveTimeout   = time.Second
	hurriedTimeout = 200 * time.Millisecond
)

// Leaving is how a session leaves.
type Leaving struct {
	// Settle is called when the mailbox takes nothing more and before positions
	// are read; it may be nil.
	Settle func()
	// Hurry says that another waits for its place.
	Hurry bool
	// Left, if set, is told what the session was done with, before that is
	// committed. It is not told of one that has lost its lease: that is nobody's
	// business any more.
	Left func(watermark []byte)
}

// Leave ends the subscription: nothing more is delivered, what is done is
// committed, unless the lease is lost. The lease may be freed afterwards.
func (s *Subscription) Leave(ctx context.Context, how Leaving) {
	s.r.unregister(s)
	s.r.addressees.drop(s.reads.Identity, s.notices)
	s.notices.leave()
	for _, l := range s.listens {
		l.p.unlisten(l.l.name, l.l)
	}
	s.unwatch()
	for _, in := range s.inboxes {
		in.Stop()
	}
	if s.worker != nil {
		s.worker.group.p.unwork(s.worker)
	}
	if !s.reads.Lease.Lost() {
		s.awaitTail(ctx, how.Hurry)
	}
	s.box.Close()
	s.again.close()
	if how.Settle != nil {
		how.Settle()
	}
	if s.worker != nil {
		s.worker.group.settled(s.worker)
	}
	again := make([]handed, len(s.inboxes))
	for i, in := range s.inboxes {
		// Until the commit all may come again. What does so after it is asked for
		// before it: the watermark may rise in between.
		s.r.repeats.set(in.Address, in.handed(none))
		again[i] = in.handed(in.watermark())
	}
	s.r.lowerPositions(ctx, s)
	clean, other := s.finals()
	if how.Left != nil && !s.reads.Lease.Lost() {
		how.Left(s.done().encode())
	}
	s.detach()
	if err := s.commitFinals(ctx, clean, other); err != nil {
		s.r.stats.CommitFailures.Add(1)
		s.r.log.Warn("positions of an ended session could not be committed; its last messages will come again", "error", err)
		return
	}
	if s.reads.Lease.Lost() {
		return // nothing was committed, or not for certain
	}
	for i, in := range s.inboxes {
		s.r.repeats.set(in.Address, again[i])
	}
	s.r.stats.Commits.Add(uint64(len(clean) + len(other)))
}

// awaitTail waits until the log has shown every live delivery, so that those
// that are done have a position that can be committed, and until the dead-letter
// log has what was refused for the last time. Who fell back while they
// were on their way reads on to find them; it takes nothing else any more.
func (s *Subscription) awaitTail(ctx context.Context, hurry bool) {
	limit := leaveTimeout
	if hurry {
		limit = hurriedTimeout
	}
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	again := time.NewTicker(leaveTimeout / 50) // a reader may let go of it
	defer again.Stop()
	for _, in := range s.inboxes {
		for {
			if in.Behind() {
				in.p.feed(in)
			}
			shown := in.p.nextEntry()
			if !in.p.expecting(in) && s.buried() {
				break
			}
			if s.reads.Lease.Lost() {
				return
			}
			select {
			case <-shown:
			case <-again.C:
			case <-deadline.C:
				return
			case <-ctx.Done():
				return
			}
		}
	}
}

func (p *partition) expecting(in *inbox) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return in.Expecting(p.seen)
}

// commits returns the positions worth committing: those that moved by a
// delivery of their own, and those that a note waits for.
// None of a lost lease (delivery rule L2).
func (s *Subscription) commits() []store.Commit {
	if s.reads.Lease.Lost() {
		return nil
	}
	var list []store.Commit
	for _, in := range s.inboxes {
		if _, lowering := in.lowering(); lowering {
			continue // it stays due
		}
		if !in.Due() && !in.owesCommit() {
			continue
		}
		position := in.watermark()
		if position == none || !in.Committing(position, false) {
			continue
		}
		list = append(list, store.Commit{
			Identity: in.Identity, Address: in.Address, Position: uint64(position), Epoch: s.reads.Lease.Epoch,
		})
	}
	return list
}

// handed says up to where messages come again, if what is done up to the
// watermark does not.
func (in *inbox) handed(watermark int64) handed {
	in.p.mu.Lock()
	seen := in.p.seen
	in.p.mu.Unlock()
	return handed{in.Handed(watermark), in.HandedLive(seen)}
}

func (in *inbox) watermark() int64 {
	in.p.mu.Lock()
	at := in.p.tailAt
	in.p.mu.Unlock()
	return in.Watermark(at)
}
