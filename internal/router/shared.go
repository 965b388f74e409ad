package router

import (
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/delivery/tracker"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/subject"
)

// topic is a shared address: whoever is connected gets what is sent from now
// on. Guarded by the partition's lock.
type topic struct {
	name    string
	void    func(*envelope.View) bool // nil: nothing is; see [Router.voidAt]
	members []*listener
	classes subject.Classes // the filters of members
	frame   []byte          // scratch
	voters  []*listener     // of the message that is shown, if it is tracked; scratch
}

// listener is one session that listens to a topic.
type listener struct {
	box   *delivery.Mailbox
	topic delivery.Topic
	// source is the session's own address; what it sent is not given back to
	// it unless echo is set.
	source string
	echo   bool
	member tracker.Member // of this gateway's polls; 0: has never been elected
	// filter is what it takes of the topic. While it is a member, interest is
	// the same among the topic's classes.
	filter   *subject.Filter
	interest subject.Interest
}

// deliver gives a message to all who listen. The frame is the same for all,
// because a shared delivery is not acknowledged, and encoded once. For whom no
// filter takes it, it does not exist. Who gets a tracked message is left in
// voters, for [partition.canvass].
func (t *topic) deliver(v *envelope.View, position uint64, r *Router) {
	t.voters = t.voters[:0]
	if v.ExpiresAtMS != 0 && v.Expired(r.nowMS()) {
		r.stats.Expired.Add(1)
		return
	}
	if t.void != nil && t.void(v) {
		return
	}
	matched := t.classes.Match(v.Subject)
	encoded := false
	for _, m := range t.members {
		if !m.interest.Takes(matched) || !m.echo && string(v.Source) == m.source {
			continue
		}
		if !encoded {
			t.frame = v.AppendFrame(t.frame[:0], envelope.Delivery{Position: position, Known: true})
			encoded = true
		}
		if v.Tracking != 0 {
			t.voters = append(t.voters, m)
			continue
		}
		m.box.Shared(&m.topic, t.frame)
		r.stats.Shared.Add(1)
	}
	if cap(t.frame) > 64<<10 && v.Tracking == 0 {
		t.frame = nil // one large message must not keep its size for ever
	}
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
		t = &target{topic: &topic{name: name, void: p.r.voidAt(name)}}
		p.targets[name] = t
	}
	t.topic.members = append(t.topic.members, l)
	l.interest = t.topic.classes.Join(l.filter)
}

// refilter changes what a member takes.
func (p *partition) refilter(l *listener, f *subject.Filter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	l.filter = f
	if t := p.targets[l.topic.Name]; t != nil && t.topic != nil {
		// Before the old ones go, so that those which stay keep their place.
		interest := t.topic.classes.Join(f)
		t.topic.classes.Leave(l.interest)
		l.interest = interest
	}
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
	members := t.topic.members
	for i, m := range members {
		if m == l {
			last := len(members) - 1
			members[i], members[last] = members[last], nil
			t.topic.members = members[:last]
			p.r.polls.leave(l)
			t.topic.classes.Leave(l.interest)
			break
		}
	}
	if len(t.topic.members) == 0 {
		delete(p.targets, name)
	}
}
