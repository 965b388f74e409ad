package auth

// sealed holds a secret where fmt and reflection-based loggers cannot read it.
// They print a func as its address, also inside an unexported field, whose
// String method fmt would not call. The zero value holds "".
type sealed struct{ open func() string }

func seal(s string) sealed { return sealed{open: func() string { return s }} }

func (s sealed) value() string {
	if s.open == nil {
		return ""
	}
	return s.open()
}
