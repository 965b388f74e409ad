package auth

// sealed holds a secret where fmt and reflection-based loggers cannot read it.
// They print a func as its address, also inside an unexported field, whose
// String method fmt would not call. The zero value holds T's zero value.
type sealed[T any] struct{ open func() T }

func seal[T any](v T) sealed[T] { return sealed[T]{open: func() T { return v }} }

func (s sealed[T]) value() (v T) {
	if s.open == nil {
		return v
	}
	return s.open()
}
