package embedded

import "github.com/aether-gateway/gateway/internal/streams"

const (
	// recentEntries and recentBytes bound the entries of a partition that are
	// kept in memory for the consumers at its end; the oldest go first.
	recentEntries = 256
	recentBytes   = 2 << 20
)

// recent is a ring of the last committed entries, whose offsets follow on each
// other. The zero value is empty.
type recent struct {
	ring  [recentEntries]streams.Entry
	first int // index of the oldest
	n     int
	bytes int
}

func (r *recent) add(e streams.Entry) {
	for r.n > 0 && (r.n == recentEntries || r.bytes+len(e.Data) > recentBytes) {
		r.evict()
	}
	r.ring[(r.first+r.n)%recentEntries] = e
	r.n++
	r.bytes += len(e.Data)
}

func (r *recent) evict() {
	e := &r.ring[r.first]
	r.bytes -= len(e.Data)
	*e = streams.Entry{}
	r.first = (r.first + 1) % recentEntries
	r.n--
}

// evictBelow drops what retention has dropped.
func (r *recent) evictBelow(offset uint64) {
	for r.n > 0 && r.ring[r.first].Offset < offset {
		r.evict()
	}
}

// from appends to batch, up to its capacity, the entries from offset on. It
// appends nothing if offset is older than the oldest one.
func (r *recent) from(offset uint64, batch []streams.Entry) []streams.Entry {
	if r.n == 0 || offset < r.ring[r.first].Offset {
		return batch
	}
	for i := offset - r.ring[r.first].Offset; i < uint64(r.n) && len(batch) < cap(batch); i++ {
		batch = append(batch, r.ring[(r.first+int(i))%recentEntries])
	}
	return batch
}
