package router

import (
	"bytes"
	"slices"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/delivery/ring"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/subject"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// A session may see what workers compete for and take nothing of it: it observes
// every address of workers at which a rule says so. The rules are asked for each
// message, so that a change of them counts at once. What an observer gets is a
// shared delivery: it is not acknowledged, and whoever is too slow is told of
// the loss.

// maxWatched is how many addresses of a partition an observer's losses are
// counted apart for; those of others are told as of all workers' addresses.
const maxWatched = 256

// everyWorker takes every address of workers.
var everyWorker = func() *subject.Pattern {
	p, err := subject.CompileAddress(subject.Strict, address.PrefixTaskBroadcast.String()+"::*::*")
	if err != nil {
		panic(err)
	}
	return p
}()

var workersPrefix = []byte(address.PrefixTaskBroadcast.String() + "::")

// MayFilter refuses filters that ask for what no rule could ever let the
// principal see.
func (r *Router) MayFilter(p *acl.Principal, f *Filters) *wireerr.Error {
	if f.Observes() && !r.rules.MightAllow(p, acl.ActionObserve, everyWorker) {
		return wireerr.New(wireerr.PermissionDenied, "no rule lets %s observe what workers compete for", p.Name())
	}
	return nil
}

// watchers are those who observe the workers' addresses of a partition. Guarded
// by its lock.
type watchers struct {
	list    []*watcher
	classes subject.Classes
	rings   map[string]*watched // by address; at most maxWatched, and one for all others
}

// watcher is one observer in one partition.
type watcher struct {
	p         *partition
	box       *delivery.Mailbox
	principal acl.Principal
	filter    *subject.Filter
	interest  subject.Interest
}

// watched is the ring of one address for its observers, who join it with what
// they see first of it.
type watched struct {
	ring    *delivery.Ring
	cursors map[*watcher]*delivery.Cursor
}

// ringOf is by what an address is observed.
func (all *watchers) ringOf(topic []byte, r *Router) (name string, at *watched) {
	if at = all.rings[string(topic)]; at != nil {
		return string(topic), at
	}
	name = string(topic)
	if len(all.rings) >= maxWatched {
		name = address.PrefixTaskBroadcast.String()
	}
	if at = all.rings[name]; at == nil {
		if all.rings == nil {
			all.rings = map[string]*watched{}
		}
		at = &watched{r.newRing(), map[*watcher]*delivery.Cursor{}}
		all.rings[name] = at
	}
	return name, at
}

// cursorOf is a watcher's place in a ring.
func (at *watched) cursorOf(w *watcher, name string) *delivery.Cursor {
	c := at.cursors[w]
	if c == nil {
		c = w.box.NewCursor(name)
		c.Follow(at.ring, ring.Join{Class: ring.Every})
		at.cursors[w] = c
	}
	return c
}

// watch begins to observe, or ends it, or changes what is taken, as the filters
// say. It is called by the one that changes the subscription.
func (s *Subscription) watch(f *Filters) {
	if !f.Observes() {
		s.unwatch()
		return
	}
	filter := f.kinds[address.PrefixTaskBroadcast].filter
	for _, p := range s.r.parts {
		i := slices.IndexFunc(s.watches, func(w *watcher) bool { return w.p == p })
		if i < 0 {
			i = len(s.watches)
			s.watches = append(s.watches, &watcher{
				p: p, box: s.box, principal: s.reads.Observer,
			})
		}
		s.watches[i].join(filter)
	}
}

func (s *Subscription) unwatch() {
	for _, w := range s.watches {
		w.leave()
	}
	s.watches = nil
}

// join adds the watcher, or changes what it takes.
func (w *watcher) join(f *subject.Filter) {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	all := &w.p.watchers
	was := w.interest
	w.filter, w.interest = f, all.classes.Join(f)
	if slices.Contains(all.list, w) {
		all.classes.Leave(was)
	} else {
		all.list = append(all.list, w)
	}
}

func (w *watcher) leave() {
	w.p.mu.Lock()
	defer w.p.mu.Unlock()
	all := &w.p.watchers
	if i := slices.Index(all.list, w); i >= 0 {
		all.list = slices.Delete(all.list, i, i+1)
		all.classes.Leave(w.interest)
	}
	for name, at := range all.rings {
		if c := at.cursors[w]; c != nil {
			c.Leave()
			delete(at.cursors, w)
		}
		if len(at.cursors) == 0 {
			delete(all.rings, name)
		}
	}
}

// show gives a message that workers compete for to those who may observe it. The
// partition's lock is held.
func (all *watchers) show(v *envelope.View, position int64, r *Router) {
	if !bytes.HasPrefix(v.Topic, workersPrefix) || v.Expired(r.nowMS()) {
		return
	}
	to, err := address.Parse(string(v.Topic))
	if err != nil || r.spaces.over([]byte(to.Workspace()), v.Era) {
		return
	}
	matched := all.classes.Match(v.Subject)
	var readers []*ring.Reader[delivery.Shared]
	var name string
	var at *watched
	for _, w := range all.list {
		if !w.interest.Takes(matched) || !r.rules.Allows(&w.principal, acl.ActionObserve, to) {
			continue
		}
		if at == nil {
			name, at = all.ringOf(v.Topic, r)
		}
		if rd := at.cursorOf(w, name).Reader(); rd != nil {
			readers = append(readers, rd)
		}
	}
	if len(readers) == 0 {
		return
	}
	s := delivery.Shared{Frame: frameOf(v, uint64(position))}
	at.ring.Publish(ring.Message[delivery.Shared]{Item: s, Size: len(s.Frame), Only: readers})
	r.stats.Shared.Add(uint64(len(readers)))
}
