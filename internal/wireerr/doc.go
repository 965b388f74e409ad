// Package wireerr is the one table of the errors that clients see: for each
// code whether a retry may help, whether the session ends, whose fault it is and
// what to do. The page docs/errors.md is made from it.
//
// An [Error] is what every package that refuses a client's frame returns; the
// session turns it into an ErrorResponse. The package knows neither protocol
// messages nor sessions and imports nothing of ours.
//
// It refuses to carry what must not leave the process: an error that is not an
// *Error becomes ERR_INTERNAL with a fixed text (see [From]), causes stay out of
// the message, and texts are bounded and made valid UTF-8.
package wireerr

//go:generate go test -run TestPage -update .
