package client

// messageKey names a message: ids are chosen by senders, and one sender may use
// an id once per address (delivery rule P6).
type messageKey struct{ source, topic, id string }

func keyOf(m *Message) messageKey { return messageKey{m.Source, m.Topic, m.ID} }

// window remembers what is being processed and the last so many that are done.
// What failed is forgotten at once, because it is to be processed again. Not
// safe for concurrent use.
//
// Memory: the done ones are bounded by limit, the oldest go first; those in
// progress are bounded by what may be unacknowledged.
type window struct {
	limit   int
	entries map[messageKey]seen
	done    []messageKey // a ring once it is full
	oldest  int
}

// seen is a message in progress, or the verdict on a done one.
type seen struct {
	m       *Message
	verdict verdict
}

func newWindow(limit int) window {
	return window{limit: max(limit, 0), entries: make(map[messageKey]seen)}
}

func (w *window) find(k messageKey) (seen, bool) {
	s, ok := w.entries[k]
	return s, ok
}

func (w *window) begin(k messageKey, m *Message) { w.entries[k] = seen{m: m} }

func (w *window) forget(k messageKey) { delete(w.entries, k) }

func (w *window) finish(k messageKey, v verdict) {
	if v == requeued || w.limit == 0 {
		delete(w.entries, k)
		return
	}
	w.entries[k] = seen{verdict: v}
	if len(w.done) < w.limit {
		w.done = append(w.done, k)
		return
	}
	delete(w.entries, w.done[w.oldest])
	w.done[w.oldest] = k
	w.oldest = (w.oldest + 1) % w.limit
}
