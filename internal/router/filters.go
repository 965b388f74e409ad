package router

import (
	"errors"
	"maps"
	"slices"
	"strconv"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery/tracker"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/subject"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

const (
	// maxFilters bounds the distinct filters of one subscription, maxAllFilters
	// those of a session.
	maxFilters    = 32
	maxAllFilters = 256
	// maxSubscriptions bounds the entries of a request; each kind of address may
	// stand in several.
	maxSubscriptions = 256
)

// filterable are the kinds of addresses of which a session may take a part.
var filterable = map[string]address.Prefix{}

func init() {
	for _, p := range []address.Prefix{
		address.PrefixAllAgents, address.PrefixAllUsers, address.PrefixUserWorkspace, address.PrefixProgress,
		address.PrefixEvent, address.PrefixMetric, address.PrefixTaskBroadcast,
	} {
		filterable[p.String()] = p
	}
}

// Filters is what a session takes of what it is subscribed to, by kind of
// address (runtime rule 2). Nil takes everything and observes nothing. It is
// immutable.
type Filters struct {
	kinds map[address.Prefix]kindFilter
}

type kindFilter struct {
	filter *subject.Filter
	fair   bool // turns between senders
}

// ParseFilters checks what a client asks for. It is wanted as a whole or not at
// all; what stands twice counts once. Several entries for one kind of address
// take what any of them takes. The errors are ERR_INVALID_FILTER and, for what
// this gateway cannot do, ERR_NOT_IMPLEMENTED.
func ParseFilters(list []*aetherv1.TopicFilter) (*Filters, *wireerr.Error) {
	if len(list) == 0 {
		return nil, nil
	}
	if len(list) > maxSubscriptions {
		return nil, invalidFilter("%d entries are given, %d are allowed", len(list), maxSubscriptions)
	}
	d := filterDraft{kinds: map[address.Prefix]*kindDraft{}}
	for i, entry := range list {
		if err := d.add(entry); err != nil {
			return nil, err.With("entry", strconv.Itoa(i))
		}
	}
	f := &Filters{kinds: make(map[address.Prefix]kindFilter, len(d.kinds))}
	for kind, k := range d.kinds {
		filter, err := subject.NewFilter(slices.Collect(maps.Keys(k.texts))...)
		if err != nil {
			return nil, invalidPattern(err)
		}
		f.kinds[kind] = kindFilter{filter, k.fair}
	}
	return f, nil
}

// filterDraft collects what a client asks for.
type filterDraft struct {
	kinds map[address.Prefix]*kindDraft
	all   int // distinct filters
}

type kindDraft struct {
	texts map[string]struct{} // at most maxAllFilters
	fair  bool
}

func (d *filterDraft) add(entry *aetherv1.TopicFilter) *wireerr.Error {
	kind, ok := filterable[entry.GetTopicPrefix()]
	if !ok {
		return invalidFilter("topic_prefix %.32q is none of ga, gu, uw, pg, event, metric and tb", entry.GetTopicPrefix())
	}
	if err := checkFair(kind, entry.GetFair()); err != nil {
		return err
	}
	k := d.kinds[kind]
	if k == nil {
		k = &kindDraft{texts: map[string]struct{}{}}
		d.kinds[kind] = k
	}
	k.fair = k.fair || entry.GetFair()
	subjects := entry.GetSubjects()
	if len(subjects) == 0 {
		subjects = everySubject
	}
	own := map[string]struct{}{}
	for i, text := range subjects {
		if _, again := own[text]; again {
			continue
		}
		if own[text] = struct{}{}; len(own) > maxFilters {
			return invalidFilter("a subscription has more than %d filters", maxFilters).With("limit", strconv.Itoa(maxFilters))
		}
		if _, known := k.texts[text]; known {
			continue
		}
		if _, err := subject.Compile(subject.Segmented, text); err != nil {
			return invalidPattern(err).With("subject", strconv.Itoa(i))
		}
		k.texts[text] = struct{}{}
		if d.all++; d.all > maxAllFilters {
			return invalidFilter("a session has more than %d filters", maxAllFilters).With("limit", strconv.Itoa(maxAllFilters))
		}
	}
	return nil
}

// everySubject is what an entry without subjects takes.
var everySubject = []string{""}

func checkFair(kind address.Prefix, fair bool) *wireerr.Error {
	switch {
	case !fair:
		return nil
	case kind == address.PrefixEvent || kind == address.PrefixTaskBroadcast:
		return invalidFilter("fair is not for addresses of kind %s", kind)
	}
	return nil
}

func invalidFilter(format string, args ...any) *wireerr.Error {
	return wireerr.New(wireerr.InvalidFilter, format, args...)
}

func invalidPattern(err error) *wireerr.Error {
	e := invalidFilter("%v", err)
	if broken, ok := errors.AsType[*subject.Error](err); ok {
		e = e.With("rule", string(broken.Code))
	}
	return e
}

// of returns what is taken of an address.
func (f *Filters) of(topic string) *subject.Filter {
	if f == nil {
		return nil
	}
	if topic == anyEvent {
		return f.kinds[address.PrefixEvent].filter
	}
	a, err := address.Parse(topic)
	if err != nil {
		return nil
	}
	return f.kinds[a.Prefix()].filter
}

// Fair reports whether turns between senders are asked for at a kind of address.
func (f *Filters) Fair(kind address.Prefix) bool { return f != nil && f.kinds[kind].fair }

// Observes reports whether the session wants to see what workers compete for.
func (f *Filters) Observes() bool {
	if f == nil {
		return false
	}
	_, ok := f.kinds[address.PrefixTaskBroadcast]
	return ok
}

// unwanted is what [delivery.Inbox.Narrow] asks, nil if everything is wanted. For
// a tracked send that is left out there is nobody who could acknowledge it.
func (p *partition) unwanted(f *subject.Filter) func(*envelope.View) bool {
	if f == nil {
		return nil
	}
	return func(v *envelope.View) bool {
		if f.Match(v.Subject) {
			return false
		}
		p.refuseTracked(v, tracker.NoEligible)
		return true
	}
}

// Filter replaces what the session takes of what it is subscribed to, for all
// that is handed to it from now on; what waits for it already stays. It must not
// be called beside [Subscription.Move] or [Subscription.Leave].
func (s *Subscription) Filter(f *Filters) {
	s.reads.Filters = f
	for _, l := range s.listens {
		l.p.refilter(l.l, f)
	}
	for _, in := range s.inboxes {
		in.Narrow(in.p.unwanted(f.of(in.topic)))
	}
	s.watch(f)
}
