package router

import (
	"context"
	"time"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/streams"
)

const (
	// rateWindow is over which rates are taken, maxRateBytes how much of each
	// partition's recent past is read for them at most.
	rateWindow   = 10 * time.Second
	maxRateBytes = 4 << 20
	// oldestTimeout and maxOldest bound the search for the oldest messages of
	// those who are far behind.
	oldestTimeout = time.Second
	maxOldest     = 20
)

// Rates returns how many messages a second were stored lately, by address, in
// all addresses.
func (r *Router) Rates() map[string]float64 {
	now := r.now()
	rates := map[string]float64{}
	for _, p := range r.parts {
		p.mu.Lock()
		entries := p.recent.entries
		from, size := len(entries), 0
		for from > 0 && size < maxRateBytes {
			from--
			size += len(entries[from].Data)
		}
		recent := append([]streams.Entry(nil), entries[from:]...)
		p.mu.Unlock()
		p.countRates(recent, now, rates)
	}
	return rates
}

// countRates adds the rates of a partition. If what was read covers less than
// the window, the rates are those of what it covers.
func (p *partition) countRates(recent []streams.Entry, now time.Time, rates map[string]float64) {
	counts, span := map[string]int{}, rateWindow
	begin := now.Add(-rateWindow).UnixMilli()
	if len(recent) > 0 {
		if first := stampOf(recent[0]); first > begin && len(recent[0].Data) > 0 && cut(recent) {
			span = max(now.Sub(time.UnixMilli(first)), time.Second)
		}
	}
	for _, e := range recent {
		scanEntry(e, 0, func(v *envelope.View, _ int64) bool {
			if v.TimestampMS >= begin {
				counts[string(v.Topic)]++
			}
			return true
		})
	}
	for topic, n := range counts {
		rates[topic] += float64(n) / span.Seconds()
	}
}

// cut reports whether more was there than was read.
func cut(recent []streams.Entry) bool {
	size := 0
	for _, e := range recent {
		size += len(e.Data)
	}
	return size >= maxRateBytes
}

// Backlog is how much waits for an address.
type Backlog struct {
	// Count is how many messages; without Exact it is at least so many.
	Count uint64
	Exact bool
	// Oldest is when the first of them was sent; zero if there is none, or none
	// was found in time.
	Oldest time.Time
}

// Backlogs says how much waits for exclusive addresses. What lies in the recent
// past that is kept in memory is counted; of those who are further behind the
// oldest message is looked for, for at most so many and for so long.
func (r *Router) Backlogs(ctx context.Context, list []address.Address) (map[string]Backlog, error) {
	found := map[string]Backlog{}
	wanted := make(map[*partition]map[string]int64, len(r.parts))
	var behind []address.Address
	for _, a := range list {
		m, err := r.Mail(ctx, a)
		if err != nil {
			return nil, err
		}
		key := a.String()
		p := r.parts[r.placement.Of(key)]
		from := m.from
		if m.clean && m.leapMax != none {
			from = max(from, m.leapMax)
		}
		switch {
		case m.empty, m.clean && m.leapMax == none:
			found[key] = Backlog{Exact: true}
		case p.covers(from - 1):
			if wanted[p] == nil {
				wanted[p] = map[string]int64{}
			}
			wanted[p][key] = from
			found[key] = Backlog{Exact: true}
		default:
			behind = append(behind, a)
			found[key] = Backlog{}
		}
	}
	for p, froms := range wanted {
		p.countRecent(froms, found)
	}
	for _, a := range behind[:min(len(behind), maxOldest)] {
		b, err := r.oldest(ctx, a)
		if err != nil {
			return nil, err
		}
		found[a.String()] = b
	}
	return found, nil
}

// countRecent counts what the ring has of addresses, from their positions on.
func (p *partition) countRecent(froms map[string]int64, found map[string]Backlog) {
	p.mu.Lock()
	recent := append([]streams.Entry(nil), p.recent.entries...)
	p.mu.Unlock()
	for _, e := range recent {
		scanEntry(e, 0, func(v *envelope.View, position int64) bool {
			from, ok := froms[string(v.Topic)]
			if !ok || position < from || p.copies.of(position).again {
				return true
			}
			b := found[string(v.Topic)]
			if b.Count++; b.Count == 1 {
				b.Oldest = time.UnixMilli(v.TimestampMS)
			}
			found[string(v.Topic)] = b
			return true
		})
	}
}

// oldest looks for the first message that waits for an address.
func (r *Router) oldest(ctx context.Context, a address.Address) (b Backlog, err error) {
	m, err := r.Mail(ctx, a)
	if err != nil {
		return b, err
	}
	bounded, cancel := context.WithTimeout(ctx, oldestTimeout)
	defer cancel()
	whole, err := r.unread(bounded, a, m, func(v *envelope.View, _ int64) bool {
		b.Count, b.Oldest = 1, time.UnixMilli(v.TimestampMS)
		return false
	})
	if err != nil {
		return Backlog{}, nil //nolint:nilerr // it is not known, which is what the zero value says
	}
	b.Exact = whole && b.Count == 0
	return b, nil
}
