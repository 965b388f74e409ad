package router

import (
	"cmp"
	"slices"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/delivery/ring"
	"github.com/aether-gateway/gateway/internal/delivery/route"
	"github.com/aether-gateway/gateway/internal/delivery/tracker"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/subject"
	"github.com/aether-gateway/gateway/internal/wiring"
)

// topic is a shared address: whoever is connected gets what is sent from now
// on. Guarded by the partition's lock.
type topic struct {
	name     string
	void     func(*envelope.View) bool // nil: nothing is; see [Router.voidAt]
	ring     *delivery.Ring
	members  []*listener
	bySource map[string]*listener // the latest member of each source
	audience audience
	// disconnect ends who falls behind what the ring keeps.
	disconnect bool
	voters     []*listener // of the message that is shown, if it is tracked; scratch
}

// listener is one session that listens to a topic.
type listener struct {
	name   string
	box    *delivery.Mailbox
	cursor *delivery.Cursor
	// source is the session's own address; what it sent is not given back to
	// it unless echo is set.
	source string
	echo   bool
	// filter is what it takes of the topic; with fair it has a route in place of a
	// reader of the ring. While it is a member, interest and class say the same
	// among the topic's members.
	filter   *subject.Filter
	fair     bool
	interest subject.Interest
	class    int
	member   tracker.Member // of this gateway's polls; 0: has never been elected
}

// newListener is what a session hears a shared address by.
func newListener(name string, box *delivery.Mailbox, reads *Reads) *listener {
	l := &listener{name: name, box: box, cursor: box.NewCursor(name), source: reads.Identity, echo: reads.Echo}
	l.take(reads.Filters)
	return l
}

// take sets what the listener takes. Metrics take turns between their senders,
// whatever is asked for.
func (l *listener) take(f *Filters) {
	l.filter, l.fair = f.of(l.name), false
	if a, err := address.Parse(l.name); err == nil {
		l.fair = a.Prefix() == address.PrefixMetric || f.Fair(a.Prefix())
	}
}

// deliver gives a message to all who listen. For whom no filter takes it, it does
// not exist. Who gets a tracked message is left in voters, for
// [partition.canvass], and it is given to them there.
func (t *topic) deliver(v *envelope.View, position uint64, r *Router) {
	t.voters = t.voters[:0]
	if v.ExpiresAtMS != 0 && v.Expired(r.nowMS()) {
		r.stats.Expired.Add(1)
		return
	}
	if t.void != nil && t.void(v) {
		return
	}
	matched := t.audience.classes.Match(v.Subject)
	if v.Tracking != 0 {
		for _, l := range t.members {
			if l.interest.Takes(matched) && (l.echo || string(v.Source) != l.source) {
				t.voters = append(t.voters, l)
			}
		}
		return
	}
	except := t.bySource[string(v.Source)]
	if except != nil && except.echo {
		except = nil
	}
	t.publish(v, matched, except, nil, r, func() []byte { return frameOf(v, position) })
}

// vote gives a tracked message to those who may vote.
func (t *topic) vote(v *envelope.View, position uint64, ballots map[*delivery.Cursor]delivery.Ballot, r *Router) {
	matched := t.audience.classes.Match(v.Subject)
	except := t.bySource[string(v.Source)]
	if except != nil && except.echo {
		except = nil
	}
	t.publish(v, matched, except, ballots, r, func() []byte { return frameOf(v, position) })
}

// frameOf encodes the frame that all who listen share. It is the same for all,
// because nobody acknowledges it.
func frameOf(v *envelope.View, position uint64) []byte {
	d := envelope.Delivery{Position: position, Known: true}
	return v.AppendFrame(make([]byte, 0, v.FrameSize(d)), d)
}

// publish encodes a message, once and only if somebody takes it, and gives it to
// all of them but one.
func (t *topic) publish(v *envelope.View, matched subject.Matched, except *listener, ballots map[*delivery.Cursor]delivery.Ballot, r *Router, encode func() []byte) {
	classes, readers := t.audience.takers(matched)
	var own *ring.Reader[delivery.Shared]
	if except != nil && except.interest.Takes(matched) {
		if own = except.cursor.Reader(); own != nil {
			readers--
		}
	}
	var s delivery.Shared
	if readers > 0 {
		s = delivery.Shared{Frame: encode(), Ballots: ballots}
		t.ring.Publish(ring.Message[delivery.Shared]{
			Item: s, Size: len(s.Frame), Classes: classes, Subject: t.audience.subjectOf(v), Except: own, Tracked: ballots != nil,
		})
		r.stats.Shared.Add(uint64(readers))
	}
	for _, l := range t.audience.fair {
		if l == except || !l.interest.Takes(matched) {
			continue
		}
		if s.Frame == nil {
			s = delivery.Shared{Frame: encode(), Ballots: ballots}
		}
		l.cursor.Push(v.Source, len(v.Subject), s)
		r.stats.Shared.Add(1)
	}
}

// only gives a frame to some of the members alone, whatever their filters are.
func (t *topic) only(v *envelope.View, frame []byte, to []*listener, r *Router) {
	s := delivery.Shared{Frame: frame}
	readers := make([]*ring.Reader[delivery.Shared], 0, len(to))
	for _, l := range to {
		if rd := l.cursor.Reader(); rd != nil {
			readers = append(readers, rd)
		} else {
			l.cursor.Push(v.Source, len(v.Subject), s)
		}
	}
	if len(readers) > 0 {
		t.ring.Publish(ring.Message[delivery.Shared]{Item: s, Size: len(frame), Only: readers})
	}
	r.stats.Shared.Add(uint64(len(to)))
}

func (p *partition) listen(name string, l *listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.joinTopic(name, l)
}

// joinTopic is listen with the lock held.
func (p *partition) joinTopic(name string, l *listener) {
	t := p.targets[name]
	if t == nil {
		t = &target{topic: p.r.newTopic(name)}
		p.targets[name] = t
	}
	t.topic.members = append(t.topic.members, l)
	t.topic.bySource[l.source] = l
	t.topic.seat(l, p.r)
}

// maxFrame is more than a frame has beside its payload.
const maxFrame = 64 << 10

// routeOptions bounds a route. The largest message has room in it.
func (r *Router) routeOptions() route.Options {
	return route.Options{
		Budget: max(cmp.Or(r.shared.RouteBytes, route.DefaultBudget), r.maxPayload+maxFrame), PerPrincipal: r.shared.RouteMessages, Principals: r.shared.RoutePrincipals, Counters: &r.routes,
	}
}

func (r *Router) newRing() *delivery.Ring {
	return delivery.NewRing(r.shared.RingMessages, r.shared.RingBytes, &r.rings)
}

func (r *Router) newTopic(name string) *topic {
	t := &topic{name: name, void: r.voidAt(name), ring: r.newRing(), bySource: map[string]*listener{}}
	if a, err := address.Parse(name); err == nil {
		if s := r.topics.Of(a); s != nil {
			t.ring, t.disconnect = delivery.NewRing(s.Ring, int(s.Bytes), &r.rings), s.OnLag == wiring.Disconnect
		}
	}
	return t
}

// seat gives a member its place, by what it takes.
func (t *topic) seat(l *listener, r *Router) {
	t.audience.join(l)
	if l.fair {
		l.cursor.Queue(r.routeOptions())
		return
	}
	l.cursor.Follow(t.ring, ring.Join{Class: l.class, Match: l.filter.Match, Disconnect: t.disconnect})
}

// refilter changes what a member takes. What waits for it stays.
func (p *partition) refilter(l *listener, f *Filters) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[l.name]
	if t == nil || t.topic == nil {
		l.take(f)
		return
	}
	was := *l
	l.take(f)
	if l.fair == was.fair && filterKey(l.filter) == filterKey(was.filter) {
		return
	}
	// Before the old ones go, so that those which stay keep their place.
	t.topic.seat(l, p.r)
	t.topic.audience.leave(&was, l)
}

func (p *partition) unlisten(name string, l *listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaveTopic(name, l)
}

// leaveTopic is unlisten with the lock held.
func (p *partition) leaveTopic(name string, l *listener) {
	t := p.targets[name]
	if t == nil || t.topic == nil {
		return
	}
	i := slices.Index(t.topic.members, l)
	if i < 0 {
		return
	}
	last := len(t.topic.members) - 1
	t.topic.members[i], t.topic.members[last] = t.topic.members[last], nil
	t.topic.members = t.topic.members[:last]
	if t.topic.bySource[l.source] == l {
		delete(t.topic.bySource, l.source)
	}
	t.topic.audience.leave(l, l)
	p.r.polls.leave(l)
	l.cursor.Leave()
	if last == 0 {
		delete(p.targets, name)
	}
}
