package streams

// failures collects failed items and finds those that follow one of them.
type failures[T any] struct {
	follows func(failed, later *T) bool
	key     func(*T) uint64
	byKey   map[uint64][]T
}

func newFailures[T any](follows func(failed, later *T) bool, key func(*T) uint64) *failures[T] {
	if key == nil {
		key = func(*T) uint64 { return 0 }
	}
	return &failures[T]{follows: follows, key: key}
}

func (f *failures[T]) none() bool { return len(f.byKey) == 0 }

// add adds failed items. One that follows a failed one already adds nothing:
// what follows it follows the first as well.
func (f *failures[T]) add(items []T) {
	if f.follows == nil {
		return
	}
	if f.byKey == nil {
		f.byKey = make(map[uint64][]T)
	}
	for i := range items {
		if !f.followed(&items[i]) {
			k := f.key(&items[i])
			f.byKey[k] = append(f.byKey[k], items[i])
		}
	}
}

// followed reports whether an item follows one that has failed.
func (f *failures[T]) followed(item *T) bool {
	if f.none() {
		return false
	}
	same := f.byKey[f.key(item)]
	for i := range same {
		if f.follows(&same[i], item) {
			return true
		}
	}
	return false
}
