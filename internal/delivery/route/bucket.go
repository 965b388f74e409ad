package route

import (
	"bytes"
	"hash/maphash"
)

const minTable = 8

// bucket finds that of a principal, or makes it. Past the bound it is that of
// the system.
func (r *Route[T]) bucket(principal []byte) *bucket {
	h := maphash.Bytes(r.seed, principal)
	if b := r.find(h, principal); b != nil {
		return b
	}
	if r.buckets >= r.opts.Principals && len(principal) > 0 {
		return r.bucket(nil)
	}
	b := r.spare
	if b == nil {
		b = &bucket{}
	} else {
		r.spare = b.chain
	}
	*b = bucket{name: append(b.name[:0], principal...), hash: h, first: none, last: none, class: ClassOf(principal)}
	return b
}

func (r *Route[T]) find(h uint64, principal []byte) *bucket {
	if len(r.table) == 0 {
		return nil
	}
	b := r.table[h&uint64(len(r.table)-1)]
	for b != nil && (b.hash != h || !bytes.Equal(b.name, principal)) {
		b = b.chain
	}
	return b
}

// enter puts a bucket that has a message into the table, and at the end of the
// rotation.
func (r *Route[T]) enter(b *bucket) {
	if r.buckets >= len(r.table) {
		r.grow()
	}
	i := b.hash & uint64(len(r.table)-1)
	b.chain, r.table[i] = r.table[i], b
	r.buckets++
	if r.current == nil {
		b.next, b.prev = b, b
		r.current, r.granted = b, false
		return
	}
	b.next, b.prev = r.current, r.current.prev
	b.prev.next, b.next.prev = b, b
}

// exit takes an emptied bucket out of both. What it had saved is forfeited.
func (r *Route[T]) exit(b *bucket) {
	at := &r.table[b.hash&uint64(len(r.table)-1)]
	for *at != b {
		at = &(*at).chain
	}
	*at = b.chain
	r.buckets--
	if b.next == b {
		r.current = nil
	} else {
		b.prev.next, b.next.prev = b.next, b.prev
		if r.current == b {
			r.current, r.granted = b.next, false
		}
	}
	b.next, b.prev = nil, nil
	b.chain, r.spare = r.spare, b
	if r.buckets == 0 && len(r.table) > maxIdleTable {
		// One burst must not keep its size for ever.
		r.table, r.spare = nil, nil
	}
}

// maxIdleTable and maxIdleNodes are what an empty route keeps of its memory.
const (
	maxIdleTable = 64
	maxIdleNodes = 64
)

func (r *Route[T]) grow() {
	table := make([]*bucket, max(minTable, 2*len(r.table)))
	for _, b := range r.table {
		for b != nil {
			next := b.chain
			i := b.hash & uint64(len(table)-1)
			b.chain, table[i] = table[i], b
			b = next
		}
	}
	r.table = table
}

// append queues a message.
func (r *Route[T]) append(b *bucket, cost int, item T) {
	i := r.free
	if i == none {
		i = int32(len(r.nodes))
		r.nodes = append(r.nodes, node[T]{})
	} else {
		r.free = r.nodes[i].behind
	}
	r.nodes[i] = node[T]{item: item, cost: cost, of: b, behind: none, older: r.newest, newer: none}
	if r.newest == none {
		r.oldest = i
	} else {
		r.nodes[r.newest].newer = i
	}
	r.newest = i
	if b.last == none {
		b.first = i
	} else {
		r.nodes[b.last].behind = i
	}
	b.last = i
	b.messages++
	b.bytes += cost
	r.messages++
	r.bytes += cost
	if b.messages == 1 {
		r.enter(b)
	}
}

// remove takes the oldest message of a bucket out.
func (r *Route[T]) remove(b *bucket) T {
	i := b.first
	n := &r.nodes[i]
	item := n.item
	if n.older == none {
		r.oldest = n.newer
	} else {
		r.nodes[n.older].newer = n.newer
	}
	if n.newer == none {
		r.newest = n.older
	} else {
		r.nodes[n.newer].older = n.older
	}
	b.first = n.behind
	b.messages--
	b.bytes -= n.cost
	r.messages--
	r.bytes -= n.cost
	*n = node[T]{behind: r.free}
	r.free = i
	if b.messages == 0 {
		b.last = none
		r.exit(b)
	}
	if r.messages == 0 && len(r.nodes) > maxIdleNodes {
		r.nodes, r.free = nil, none
	}
	return item
}
