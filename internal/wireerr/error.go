package wireerr

import (
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
)

const (
	maxMessage = 1024 // bytes of Message
	maxDetails = 16   // entries of Details; further ones are dropped
	maxDetail  = 256  // bytes of each key and each value
)

// Error is one refusal, ready for the wire. New fills it from the table; the
// fields may be changed until it is handed on, after which it is read only.
type Error struct {
	Code      Code
	Message   string // for people; valid UTF-8, at most 1 KiB
	Retryable bool
	Terminal  bool
	// RetryAfter is how long to wait before a retry; 0 gives no hint. Only a
	// retryable error has one.
	RetryAfter time.Duration
	// Details are facts for programs, such as `limit`, `size`, `topic`. It may
	// be nil. Use With, which bounds it.
	Details map[string]string

	cause error
}

// New makes an error of a code with that code's properties. The text is
// formatted as by fmt.Sprintf and must hold no secret. A code that is not in
// the table becomes Internal.
func New(code Code, format string, args ...any) *Error {
	e, ok := byCode[code]
	if !ok {
		e = byCode[Internal]
	}
	text := fmt.Sprintf(format, args...)
	return &Error{Code: e.Code, Message: bound(text, maxMessage), Retryable: e.Retryable, Terminal: e.Terminal}
}

// From finds the *Error in err's chain. Any other error becomes Internal with a
// fixed text, because its own text was not written for clients; it stays
// reachable by errors.Is and Unwrap. From(nil) is nil.
func From(err error) *Error {
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return New(Internal, "internal error").Because(err)
}

// With adds one detail and returns e. Keys and values are bounded, and so is
// their number; what is over is dropped.
func (e *Error) With(key, value string) *Error {
	if len(e.Details) >= maxDetails {
		return e
	}
	if e.Details == nil {
		e.Details = make(map[string]string, 2)
	}
	e.Details[bound(key, maxDetail)] = bound(value, maxDetail)
	return e
}

// After sets the hint when to retry, marks the error retryable and returns e.
func (e *Error) After(d time.Duration) *Error {
	e.Retryable, e.RetryAfter = true, max(d, 0)
	return e
}

// RetryAfterMillis is the hint in the unit of the wire, rounded up, so that a
// client never comes back too early.
func (e *Error) RetryAfterMillis() int64 {
	return int64((e.RetryAfter + time.Millisecond - 1) / time.Millisecond)
}

// Because keeps the cause for logs and errors.Is and returns e. The cause is
// never part of the message.
func (e *Error) Because(cause error) *Error {
	e.cause = cause
	return e
}

// Error implements error. It is the code and the message, without the cause.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// Unwrap is the cause, or nil.
func (e *Error) Unwrap() error { return e.cause }

// GRPC is the status code with which a stream ends, or a unary call fails, for
// this error.
func (e *Error) GRPC() codes.Code {
	if entry, ok := byCode[e.Code]; ok {
		return entry.GRPC
	}
	return codes.Internal
}

// bound makes s valid UTF-8, as protocol strings must be, and cuts it to n
// bytes at a character's edge.
func bound(s string, n int) string {
	if len(s) > n {
		s = s[:n]
		for i := 1; i < utf8.UTFMax && i <= len(s); i++ {
			if c := s[len(s)-i]; utf8.RuneStart(c) {
				if !utf8.FullRuneInString(s[len(s)-i:]) {
					s = s[:len(s)-i]
				}
				break
			}
		}
	}
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "?")
}
