package router

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// deadIndex is what this gateway knows of the dead letters that are gone: the
// log of dead letters says it in records behind them. What it has read once it
// does not read again. It is guarded by the turn of whoever works on dead letters.
type deadIndex struct {
	read uint64 // everything before this position was read
	gone spans
}

// begin waits until nobody else works on dead letters at this gateway: who does
// reads the log, which may be long.
func (d *deadLetters) begin(ctx context.Context) (done func(), err error) {
	if d.partition < 0 {
		return nil, ErrNoDeadLetters
	}
	select {
	case d.turn <- struct{}{}:
		return func() { <-d.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// refresh reads what is new in the log of dead letters, and returns its end.
func (d *deadLetters) refresh(ctx context.Context) (end uint64, err error) {
	if end, err = d.r.deadEnd(ctx); err != nil {
		return 0, err
	}
	if end < d.read {
		d.deadIndex = deadIndex{} // the log was made anew
	}
	fresh := d.read == 0
	err = d.r.readDead(ctx, d.read, end, func(position uint64, e *aetherv1.MessageEnvelope) bool {
		if fresh {
			fresh = false
			d.gone.forgetBelow(position)
		}
		if s, ok := spanOf(e); ok && position > 0 {
			s.last = min(s.last, position-1) // what came later was not there
			d.gone.add(s)
		}
		d.read = position + 1
		return true
	})
	if err == nil {
		d.read = end
	}
	return end, err
}

// span is a range of dead letters that are gone, both ends included.
type span struct {
	first, last uint64
	replayed    bool // sent again; else purged
}

func (s span) record() map[string]string {
	m := map[string]string{purgeFrom: strconv.FormatUint(s.first, 10), purgeTo: strconv.FormatUint(s.last, 10)}
	if s.replayed {
		maps.Copy(m, map[string]string{purgeWhy: replayed})
	}
	return m
}

// spanOf reads a record; ok is false for anything else.
func spanOf(e *aetherv1.MessageEnvelope) (s span, ok bool) {
	if e.GetKind() != aetherv1.MessageEnvelope_KIND_MARKER {
		return s, false
	}
	first, errFirst := strconv.ParseUint(e.GetMetadata()[purgeFrom], 10, 64)
	last, errLast := strconv.ParseUint(e.GetMetadata()[purgeTo], 10, 64)
	return span{first, last, e.GetMetadata()[purgeWhy] == replayed}, errFirst == nil && errLast == nil && first <= last
}

// maxSpans bounds what is remembered of dead letters that are gone, which are as
// many as operators replay one by one; past it the oldest are listed again.
const maxSpans = 1 << 18

// spans are in the order of their positions and have no position in common.
type spans []span

// at returns the span that a position lies in.
func (g spans) at(position uint64) (s span, ok bool) {
	i, exact := slices.BinarySearchFunc(g, position, func(s span, p uint64) int { return cmp.Compare(s.first, p) })
	if !exact {
		i--
	}
	if i < 0 || position > g[i].last {
		return s, false
	}
	return g[i], true
}

func (g spans) has(position uint64) bool {
	_, ok := g.at(position)
	return ok
}

// add adds a span; of what was gone before it stays known why.
func (g *spans) add(s span) {
	list := *g
	from, _ := slices.BinarySearchFunc(list, s.first, func(x span, p uint64) int { return cmp.Compare(x.last, p) })
	to := from
	var merged []span
	for next := s.first; ; to++ {
		if to == len(list) || list[to].first > s.last {
			if next <= s.last {
				merged = append(merged, span{next, s.last, s.replayed})
			}
			break
		}
		x := list[to]
		if x.first > next {
			merged = append(merged, span{next, x.first - 1, s.replayed})
		}
		merged = append(merged, x)
		if x.last >= s.last {
			to++
			break
		}
		next = x.last + 1
	}
	list = slices.Replace(list, from, to, joined(merged)...)
	if extra := len(list) - maxSpans; extra > 0 {
		list = slices.Delete(list, 0, extra)
	}
	*g = list
}

// joined makes one of neighbours that are gone for the same reason.
func joined(list []span) []span {
	out := list[:0]
	for _, s := range list {
		if n := len(out); n > 0 && out[n-1].replayed == s.replayed && out[n-1].last+1 == s.first {
			out[n-1].last = s.last
			continue
		}
		out = append(out, s)
	}
	return out
}

// forgetBelow forgets what retention has removed.
func (g *spans) forgetBelow(position uint64) {
	*g = slices.DeleteFunc(*g, func(s span) bool { return s.last < position })
}
