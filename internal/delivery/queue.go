package delivery

// queue is a first-in, first-out list that keeps its memory.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

// at returns the i-th item from the front.
func (q *queue[T]) at(i int) *T { return &q.items[q.head+i] }

func (q *queue[T]) push(item T) {
	if len(q.items) == cap(q.items) && q.head > len(q.items)/2 {
		// Move to the front instead of growing; rarely enough to cost nothing.
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, item)
}

// drop forgets the n items at the front.
func (q *queue[T]) drop(n int) {
	clear(q.items[q.head : q.head+n])
	q.head += n
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
}

// remove forgets the i-th item from the front.
func (q *queue[T]) remove(i int) {
	copy(q.items[q.head+1:q.head+i+1], q.items[q.head:q.head+i])
	q.drop(1)
}

func (q *queue[T]) clear() { *q = queue[T]{} }
