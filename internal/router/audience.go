package router

import (
	"bytes"
	"slices"
	"strconv"
	"strings"

	"github.com/aether-gateway/gateway/internal/delivery/ring"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/subject"
)

// maxFilterSets is how many classes a ring has.
const maxFilterSets = 64

// audience is who listens to a topic, by what they take. Those who take the same
// are one class of the topic's ring, so that a message costs what its distinct
// filters cost, however many listen.
type audience struct {
	classes subject.Classes
	every   int         // readers of the ring that take everything
	sets    []filterSet // by class of the ring; at most maxFilterSets
	loose   int         // readers for whom no class was free
	fair    []*listener // have routes
}

// filterSet is the readers who have the same filter. Without readers it is free.
type filterSet struct {
	key      string
	interest subject.Interest
	readers  int
}

// join sets the listener's interest and class.
func (a *audience) join(l *listener) {
	l.interest = a.classes.Join(l.filter)
	l.class = ring.Every
	switch {
	case l.fair:
		a.fair = append(a.fair, l)
	case l.filter == nil:
		a.every++
	default:
		l.class = a.enter(filterKey(l.filter), l.interest)
	}
}

// enter counts a reader of a filter, and returns its class.
func (a *audience) enter(key string, interest subject.Interest) int {
	free := -1
	for class := range a.sets {
		s := &a.sets[class]
		if s.readers > 0 && s.key == key {
			s.readers++
			return class
		}
		if s.readers == 0 && free < 0 {
			free = class
		}
	}
	if free < 0 && len(a.sets) < maxFilterSets {
		free = len(a.sets)
		a.sets = append(a.sets, filterSet{})
	}
	if free < 0 {
		a.loose++
		return ring.Own
	}
	a.sets[free] = filterSet{key, interest, 1}
	return free
}

// leave takes out a listener as it was; of those who have a route, who is.
func (a *audience) leave(was, who *listener) {
	a.classes.Leave(was.interest)
	switch {
	case was.fair:
		// The first is the one that left: a changed one stands at the end.
		if i := slices.Index(a.fair, who); i >= 0 {
			a.fair = slices.Delete(a.fair, i, i+1)
		}
	case was.class == ring.Every:
		a.every--
	case was.class == ring.Own:
		a.loose--
	default:
		s := &a.sets[was.class]
		if s.readers--; s.readers == 0 {
			*s = filterSet{}
		}
	}
}

// takers returns the classes of the ring that take a message, and how many
// readers those have; those of no class count as if they took it.
func (a *audience) takers(m subject.Matched) (classes uint64, readers int) {
	readers = a.every + a.loose
	for class := range a.sets {
		if s := &a.sets[class]; s.readers > 0 && s.interest.Takes(m) {
			classes |= 1 << class
			readers += s.readers
		}
	}
	return classes, readers
}

// subjectOf is what readers of no class match by: a copy, as they may do so
// later.
func (a *audience) subjectOf(v *envelope.View) []byte {
	if a.loose == 0 {
		return nil
	}
	return bytes.Clone(v.Subject)
}

// filterKey is the same for filters that are.
func filterKey(f *subject.Filter) string {
	var b strings.Builder
	for _, p := range f.Patterns() {
		b.WriteString(strconv.Quote(p.String()))
	}
	return b.String()
}
