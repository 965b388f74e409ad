package router

// maxGhosts bounds what a partition remembers of sends that were handed over
// live and not stored; past it the oldest is forgotten, and its repeat comes
// without the flag.
const maxGhosts = 4096

// ghosts are sends under a client's message id that were handed over live and
// then could not be stored, or not for certain. If the sender sends one again,
// it is a repeat to its receiver although it is new to the log. Guarded by the
// partition's lock. The zero value is empty.
type ghosts struct {
	known map[idKey]struct{}
	order []idKey // as a ring, once it is full
	next  int
}

func (g *ghosts) add(id idKey) {
	if _, known := g.known[id]; known {
		return
	}
	if g.known == nil {
		g.known = map[idKey]struct{}{}
	}
	if len(g.order) < maxGhosts {
		g.order = append(g.order, id)
	} else {
		delete(g.known, g.order[g.next])
		g.order[g.next] = id
		g.next = (g.next + 1) % maxGhosts
	}
	g.known[id] = struct{}{}
}

// has reports whether a send is the repeat of one of them.
func (g *ghosts) has(d *draft) bool {
	if len(g.known) == 0 || !d.byClient {
		return false
	}
	_, known := g.known[d.id]
	return known
}

// vanished remembers a send that is not stored if its receiver may have it. The
// lock is held.
func (p *partition) vanished(it *pending) {
	if t := p.findString(it.key.address); t != nil && t.inbox != nil && t.inbox.Expects(it.seq) {
		p.ghosts.add(it.id)
	}
}

// announce says to who reads an address that a message is a repeat. The lock is
// held.
func (p *partition) announce(address string, seq uint64) {
	if t := p.findString(address); t != nil && t.inbox != nil {
		t.inbox.Announce(seq)
	}
}
