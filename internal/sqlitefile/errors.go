package sqlitefile

import (
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

var (
	// ErrInUse is returned by [Open] while another process, or another File of
	// this process, has the same file open.
	ErrInUse = errors.New("sqlitefile: another gateway uses this directory")
	// ErrClosed is returned by calls on a File that was closed.
	ErrClosed = errors.New("sqlitefile: closed")
	// ErrBroken is returned by writes after the disk failed under one: what
	// the file holds is only known again after it has been opened anew.
	ErrBroken = errors.New("sqlitefile: the disk failed under a write, open the file anew")
)

// PragmaError says that a connection does not have a setting that durability
// or integrity rests on.
type PragmaError struct {
	// Name is the pragma; Want and Got are its values.
	Name, Want, Got string
}

func (e *PragmaError) Error() string {
	return fmt.Sprintf("sqlitefile: pragma %s is %q, not %q: refusing to use the file", e.Name, e.Got, e.Want)
}

// breaks reports whether err leaves the content of the file unknown. After a
// failed sync the kernel may have dropped the pages that it could not write,
// so that a later success proves nothing.
func breaks(err error) bool {
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return true
	}
	return false
}
