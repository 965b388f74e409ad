package router

import (
	"bytes"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
	"github.com/aether-gateway/gateway/internal/usage"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// partition is one partition of the log as this gateway sees it.
//
// Its lock orders everything: the numbering of envelopes, live delivery, what
// the tail shows, and sessions that join. It is never held over I/O.
type partition struct {
	r      *Router
	id     int
	writer *streams.Writer[pending]
	tail   *streams.Tail
	reader reader

	mu     sync.Mutex
	seq    uint64 // the last origin_seq given
	seen   uint64 // the last own origin_seq that the tail has shown
	stored uint64 // the last own origin_seq that is confirmed
	tailAt int64  // what the tail has handed on
	recent past
	// handover says that live delivery is possible (delivery rule M3); fence
	// is the last origin_seq given when it became so.
	handover bool
	fence    uint64
	marker   uint64 // the first marker of this opening of the tail; 0: not written
	markedAt time.Time
	ready    bool // a marker has come back once
	// lookbacks is how often the start was given a shorter way.
	lookbacks int
	marked    bool   // another process's marker has been shown
	strange   string // the last fingerprint that was complained of
	upSince   time.Time
	lagSince  time.Time // since when the tail shows nothing, although more is confirmed
	lagSeen   uint64    // what it had shown then
	lagAt     int64     // what it had handed on when the clock looked last
	lagMoved  time.Time // when that moved last

	lookingBack atomic.Bool // somebody compares the log with what was read

	shown chan struct{} // closed at the next entry; nil if nobody waits for it

	targets map[string]*target
	wild    *inbox   // reads every event address without a target of its own
	holding []*inbox // have messages that wait for a fence
	ids     ids
	copies  copies
	ghosts  ghosts
	lines   lines
	// returning is what senders wait for that are new here (M2).
	returning returning
	absent    absences
	// suspects have positions beyond what the tail has shown (delivery rule C2);
	// at most the inboxes of this partition.
	suspects  []suspect
	observers map[string][]*Observer // by address
	watchers  watchers
	late      tooLate
	// unknown holds what the sender was told may or may not be stored, until
	// it is stored; as many as the writer keeps unconfirmed.
	unknown map[uint64]struct{}

	usage *usage.Partition // nil: bytes are not limited

	scratch []byte
	view    envelope.View // of the tail; the tail's goroutine only
	live    envelope.View // of senders, under mu
}

// target is who an address reaches on this gateway. One of the fields is set.
type target struct {
	inbox   *inbox
	topic   *topic
	workers *group
}

const eventPrefix = "event::"

var eventPrefixBytes = []byte(eventPrefix)

// find returns who reads an address here.
func (p *partition) find(address []byte) *target {
	if t, ok := p.targets[string(address)]; ok {
		return t
	}
	if p.wild != nil && bytes.HasPrefix(address, eventPrefixBytes) {
		return &p.wild.target
	}
	return nil
}

// findString is find for a string.
func (p *partition) findString(address string) *target {
	if t, ok := p.targets[address]; ok {
		return t
	}
	if p.wild != nil && strings.HasPrefix(address, eventPrefix) {
		return &p.wild.target
	}
	return nil
}

// up is called when the tail opens. Until a marker that is written now has
// come back, nobody is handed anything live (delivery rules M1, M3).
func (p *partition) up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handover = false
	p.marker = 0
	p.upSince = p.r.now()
	if !p.ready {
		p.recent = past{limit: p.recent.limit} // it may begin elsewhere than where it stopped
	}
	p.mark()
}

func (p *partition) down(err error) {
	p.mu.Lock()
	p.handover = false
	p.marker = 0
	p.upSince = time.Time{}
	p.mu.Unlock()
	if p.r.ctx.Err() == nil {
		p.r.log.Warn("the tail of a partition is down", "partition", p.id, "error", err)
	}
}

// mark writes a marker, and reports whether the log takes it now; if not, the
// router's clock tries again. The lock is held.
func (p *partition) mark() bool {
	e := envelope.Envelope{
		Kind: envelope.Marker, TimestampMS: p.r.now().UnixMilli(), Origin: p.r.origin, Seq: p.seq + 1,
		Metadata: map[string]string{placementKey: p.r.fingerprint},
	}
	p.scratch = e.Append(p.scratch[:0])
	if p.writer.Append(p.scratch, pending{seq: e.Seq}) != nil {
		return false
	}
	p.seq = e.Seq
	p.markedAt = p.r.now()
	if p.marker == 0 {
		p.marker = e.Seq
	}
	return true
}

// handle is the tail: it shows an entry to everybody whom it concerns.
func (p *partition) handle(e streams.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	it := streams.Open(e.Data)
	malformed := 0
	for it.Next() {
		if p.view.Parse(it.Bytes()) != nil {
			malformed++
			continue
		}
		p.show(&p.view, int64(streams.At(e.Offset, it.Index())))
	}
	malformed += it.Skipped()
	p.r.stats.DamagedEnvelopes.Add(uint64(malformed))
	p.tailAt = endOf(e.Offset)
	p.recent.add(e)
	p.comeBack()
	if p.shown != nil {
		close(p.shown)
		p.shown = nil
	}
	if it.Damaged() || malformed > 0 {
		p.damaged(e.Offset)
	}
}

// nextEntry returns a channel that is closed when the tail has shown another
// entry.
func (p *partition) nextEntry() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown == nil {
		p.shown = make(chan struct{})
	}
	return p.shown
}

// show hands an envelope on. The lock is held.
func (p *partition) show(v *envelope.View, position int64) {
	own := v.Origin == p.r.origin
	if own && len(p.holding) > 0 {
		// Everything before this envelope has been shown: who waited for that
		// goes first, so that its own copy is recognised below.
		p.unfence(v.Seq-1, position-1)
	}
	switch v.Kind {
	case envelope.Marker:
		if !own {
			p.compare(v)
		} else if p.marker != 0 && v.Seq >= p.marker && !p.handover {
			p.handover = true
			p.fence = p.seq
			p.becomeReady()
		}
	case envelope.Message, envelope.Progress:
		if p.usage != nil && len(v.Workspace) > 0 {
			p.usage.Add(v.Workspace, v.TimestampMS, position, len(v.Raw()), own)
		}
		var found verdict
		if repeatable(v) {
			found = p.judgeCopy(v, position, own)
		}
		if v.Kind == envelope.Progress {
			p.showProgress(v)
		} else {
			t := p.find(v.Topic)
			if t != nil {
				p.hand(t, v, position, own, found)
			}
			if v.Tracking != 0 && !found.again {
				p.canvass(v, t, uint64(position))
			}
		}
		if len(p.observers) > 0 && !found.again {
			p.observe(v, position)
		}
		if len(p.watchers.list) > 0 && !found.again {
			p.watchers.show(v, position, p.r)
		}
		if len(p.absent.own) > 0 {
			p.shownTo(v.Topic, position)
		}
	}
	if own {
		p.seen = max(p.seen, v.Seq)
		if len(p.suspects) > 0 {
			p.judge(v.Seq, position)
		}
		if len(p.holding) > 0 {
			p.unfence(p.seen, position)
		}
	}
}

func (p *partition) becomeReady() {
	if !p.ready {
		p.ready = true
		p.r.partReady()
	}
}

func (p *partition) hand(t *target, v *envelope.View, position int64, own bool, found verdict) {
	switch {
	case t.inbox != nil:
		in := t.inbox
		if in.Fed() == delivery.FedByTail && !in.copied(v, position, own, found) && !in.Stored(v, uint64(position), own) {
			in.Starve(position - 1)
		}
	case found.again:
	case t.topic != nil:
		t.topic.deliver(v, uint64(position), p.r)
	case t.workers != nil:
		if t.workers.fed() == delivery.FedByTail && !t.workers.take(v, uint64(position), own) {
			t.workers.starve(position - 1)
		}
	}
}

// unfence lets out what waited for seen. at is what the tail has handed on.
func (p *partition) unfence(seen uint64, at int64) {
	kept := p.holding[:0]
	for _, in := range p.holding {
		if in.Fed() == delivery.FedByTail && !in.Unfence(seen) {
			in.Starve(at)
		}
		if in.Holding() {
			kept = append(kept, in)
		} else {
			in.holding = false
		}
	}
	clear(p.holding[len(kept):])
	p.holding = kept
}

// handLive gives a message that is about to be stored to the session that
// reads its address here, if order allows it (delivery rules S2, S3). raw is
// its encoded form. The lock is held.
func (p *partition) handLive(address string, raw []byte, s *Sender) {
	t := p.findString(address)
	if t == nil || t.inbox == nil || !p.handover || t.inbox.Fed() != delivery.FedByTail {
		return
	}
	fence, eligible := s.eligible(p)
	if !eligible {
		return
	}
	in := t.inbox
	fence = max(fence, in.fence, p.fence)
	if p.live.Parse(raw) != nil {
		return
	}
	if !in.Live(&p.live, raw, fence, p.seen) {
		in.Starve(p.tailAt)
		return
	}
	p.r.stats.Live.Add(1)
	if fence > p.seen && !in.holding {
		in.holding = true
		p.holding = append(p.holding, in)
	}
}

// damaged tells every reader at the tail that an entry could not be read.
func (p *partition) damaged(offset uint64) {
	p.r.stats.DamagedEntries.Add(1)
	p.r.log.Error("an entry of the log is damaged", "partition", p.id, "offset", offset)
	for _, t := range p.targets {
		if t.inbox != nil && t.inbox.Fed() == delivery.FedByTail {
			t.inbox.tellDamaged(offset)
		}
	}
	if p.wild != nil && p.wild.Fed() == delivery.FedByTail {
		p.wild.tellDamaged(offset)
	}
}

// settled is told the outcome of appended envelopes. An outcome that was
// unknown may become known later; the sender has its answer by then.
func (p *partition) settled(items []pending, outcome streams.Outcome) {
	var repeats []waitingRepeat
	p.mu.Lock()
	for i := range items {
		it := &items[i]
		switch outcome {
		case streams.Stored:
			p.stored = max(p.stored, it.seq)
		case streams.Unknown:
			if it.sender != nil {
				p.unknown[it.seq] = struct{}{}
			}
		}
		if it.byClient {
			if outcome != streams.Stored {
				p.vanished(it)
			}
			repeats = append(repeats, p.ids.settle(it.id, it.seq, outcome)...)
		}
	}
	if outcome != streams.Stored {
		p.refuseFollowers(items)
	}
	var absent []waitingMail
	starter := p.r.armed()
	if outcome == streams.Stored && starter != nil {
		absent = p.absentees(items)
	}
	late := outcome == streams.Stored && len(p.unknown) > 0
	if late {
		// Outcomes come in the order of numbers: what is below these and was
		// taken back (P5) is not told any more.
		maps.DeleteFunc(p.unknown, func(seq uint64, _ struct{}) bool { return seq < items[0].seq })
	}
	p.mu.Unlock()
	for i := range items {
		it := &items[i]
		if it.span != nil {
			it.span.End(failure(outcome))
		}
		if it.stored != nil && outcome == streams.Stored {
			it.stored()
		}
		if it.sender == nil || late && p.wasUnknown(it.seq) {
			continue
		}
		if it.tracked {
			p.r.polls.confirmed(pollKey{p.id, it.seq}, outcome)
		}
		it.sender.settle(answer{it.requestID, it.messageID, it.key.address}, outcome, false, it.silent)
		it.sender.answered()
	}
	for _, w := range repeats {
		w.sender.settle(w.answer, outcome, true, false)
		w.sender.answered()
	}
	if len(absent) > 0 {
		p.r.tellStarter(starter, absent)
	}
}

// failure is how a span calls an outcome.
func failure(o streams.Outcome) string {
	switch o {
	case streams.Stored:
		return ""
	case streams.NotStored:
		return string(wireerr.Unavailable)
	}
	return string(wireerr.PublishFailed)
}

func (p *partition) wasUnknown(seq uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, was := p.unknown[seq]
	delete(p.unknown, seq)
	return was
}

// tick looks after what no event moves: markers that were lost, and a tail
// that shows nothing although entries are confirmed.
func (p *partition) tick(now time.Time) {
	p.mu.Lock()
	reset := false
	wanted := !p.handover && !p.upSince.IsZero() || p.returning.upTo != 0
	if wanted && now.Sub(p.markedAt) > markInterval || p.ready && now.Sub(p.markedAt) > markEvery {
		if !p.mark() {
			p.refuse(&p.returning.gate, errHeld())
		}
	}
	switch {
	case p.seen >= p.stored:
		p.lagSince = time.Time{}
	case p.lagSince.IsZero() || p.seen > p.lagSeen:
		p.lagSince, p.lagSeen = now, p.seen
	case p.tailAt != p.lagAt:
		p.lagMoved = now // it is behind, and reads
	case now.Sub(p.lagSince) > tailTimeout && now.Sub(p.lagMoved) > tailTimeout:
		reset, p.lagSince = true, time.Time{}
	}
	p.lagAt = p.tailAt
	var from *streams.Start
	if p.tooLong(now) {
		start := p.lookback()
		from = &start
	}
	p.ids.expire(now.UnixMilli())
	p.sweepAbsences(now)
	p.retrySuspects(now)
	p.mu.Unlock()
	if from != nil {
		p.tail.Restart(*from)
		return
	}
	if reset {
		p.r.log.Warn("the tail of a partition hangs and is opened anew", "partition", p.id)
		p.tail.Reset()
		p.hangs()
	}
}
