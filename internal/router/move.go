package router

import (
	"cmp"
	"slices"
)

// Move takes a session from its workspace into another, as one step (gateway.md
// 16): it leaves all shared addresses, what waits of them is dropped, frame is
// queued, and it joins others from that moment on. Nothing of what it has left
// comes after frame, and nothing of what it has joined before; with a nil frame
// there is none. Its exclusive addresses stay as they are. It cannot fail.
//
// It must not be called beside [Subscription.Leave].
func (s *Subscription) Move(workspace string, shared []string, frame []byte) (told bool) {
	joins := make([]listening, len(shared))
	for i, name := range shared {
		joins[i] = listening{s.r.parts[s.r.placement.Of(name)], s.listener(name)}
	}
	// Nothing is shown meanwhile in any partition that is left or joined; a
	// session's own progress comes by pg, which is one of them. They are locked
	// in one order: nobody else holds two.
	unlock := lockAll(append(slices.Clone(s.listens), joins...))
	defer unlock()
	for _, l := range s.listens {
		l.p.leaveTopic(l.l.name, l.l)
	}
	s.notices.leave()
	told = frame == nil || s.box.Urgent(frame)
	for _, l := range joins {
		l.p.joinTopic(l.l.name, l.l)
	}
	s.listens = joins
	s.beAddressed(workspace)
	return told
}

func lockAll(list []listening) (unlock func()) {
	parts := make([]*partition, len(list))
	for i, l := range list {
		parts[i] = l.p
	}
	slices.SortFunc(parts, func(a, b *partition) int { return cmp.Compare(a.id, b.id) })
	parts = slices.Compact(parts)
	for _, p := range parts {
		p.mu.Lock()
	}
	return func() {
		for _, p := range parts {
			p.mu.Unlock()
		}
	}
}
