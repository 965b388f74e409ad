package router

import (
	"sort"

	"github.com/aether-gateway/gateway/internal/streams"
)

// none is the position before the first.
const none int64 = -1

// endOf returns the last position that an entry can have.
func endOf(offset uint64) int64 { return int64(streams.At(offset, 1023)) }

// past is a ring that keeps the recent entries of a partition, so that a session that is
// slightly behind needs no reader of its own. Entries are evicted whole.
type past struct {
	entries []streams.Entry
	glances []*glance // of each entry; nil: nobody has read it
	bytes   int
	limit   int
	// floor is the position from which on the ring has everything; valid once
	// there is an entry.
	floor int64
}

func (r *past) add(e streams.Entry) {
	if len(r.entries) == 0 {
		r.floor = int64(streams.At(e.Offset, 0)) - 1
	}
	r.entries, r.glances = append(r.entries, e), append(r.glances, nil)
	r.bytes += len(e.Data)
	evict := 0
	for r.bytes > r.limit && evict < len(r.entries)-1 {
		r.bytes -= len(r.entries[evict].Data)
		r.floor = endOf(r.entries[evict].Offset)
		evict++
	}
	if evict > 0 {
		clear(r.entries[:evict])
		clear(r.glances[:evict])
		r.entries, r.glances = r.entries[evict:], r.glances[evict:]
	}
}

// truncate keeps the first n entries.
func (r *past) truncate(n int) {
	for _, e := range r.entries[n:] {
		r.bytes -= len(e.Data)
	}
	clear(r.entries[n:])
	clear(r.glances[n:])
	r.entries, r.glances = r.entries[:n], r.glances[:n]
}

// covers reports whether everything after a position is in the ring, or is
// yet to come.
func (r *past) covers(at int64) bool { return len(r.entries) > 0 && at >= r.floor }

// after returns the first entry that has something after a position which the
// ring covers.
func (r *past) after(at int64) (streams.Entry, *glance, bool) {
	i := r.index(at)
	if i == len(r.entries) {
		return streams.Entry{}, nil, false
	}
	if r.glances[i] == nil {
		r.glances[i] = new(glance)
	}
	return r.entries[i], r.glances[i], true
}

func (r *past) index(at int64) int {
	return sort.Search(len(r.entries), func(i int) bool { return endOf(r.entries[i].Offset) > at })
}

// entry returns the entry of an offset.
func (r *past) entry(offset uint64) (streams.Entry, bool) {
	i := sort.Search(len(r.entries), func(i int) bool { return r.entries[i].Offset >= offset })
	if i == len(r.entries) || r.entries[i].Offset != offset {
		return streams.Entry{}, false
	}
	return r.entries[i], true
}
