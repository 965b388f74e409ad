package store

import (
	"errors"
	"fmt"
)

var (
	// ErrRange is returned for a position or epoch above 2^63-1, which no
	// engine can hold. Nothing of the call was done.
	ErrRange = errors.New("store: a number is beyond 2^63-1")
	// ErrText is returned for a text, such as an identity, address or prefix,
	// that is not valid UTF-8 or contains a zero byte. Nothing of the call was
	// done.
	ErrText = errors.New("store: a text is not valid UTF-8 or contains a zero byte")
	// ErrFenced is returned for a session that begins after one of a newer
	// epoch. Nothing was done.
	ErrFenced = errors.New("store: a session with a newer epoch has begun")
	// ErrRuling is returned for a ruling that is none of those known.
	ErrRuling = errors.New("store: no such ruling")
	// ErrRevoked is returned for a revocation of what cannot be revoked.
	ErrRevoked = errors.New("store: nothing of that sort can be revoked")
	// ErrNotFound is returned for a change of what does not exist.
	ErrNotFound = errors.New("store: there is no such thing")
	// ErrFull is returned for one thing more than the store may keep.
	ErrFull = errors.New("store: there are too many already")
	// ErrActive is returned for the start of an identity of which another start
	// is active.
	ErrActive = errors.New("store: another start of it is active")
	// ErrEffect is returned for an effect of a rule that is none of those known.
	ErrEffect = errors.New("store: no such effect of a rule")
	// ErrCursor is returned for a cursor beyond all changes, such as one from
	// before the database was restored.
	ErrCursor = errors.New("store: the cursor is beyond all changes, begin anew")
)

// NameError refuses a second thing of a name that only one may have.
type NameError struct {
	Name string
	// ID is that of the one that has it.
	ID string
}

func (e *NameError) Error() string {
	return fmt.Sprintf("store: %q is the name of %s already", e.Name, e.ID)
}

// SchemaError says that the database's tables are not those that this program
// works with.
type SchemaError struct {
	// Have is the version of the database, 0 for an empty one; Want the one
	// needed.
	Have, Want int64
}

func (e *SchemaError) Error() string {
	if e.Have > e.Want {
		return fmt.Sprintf("store: the database has schema version %d, this gateway knows up to %d: "+
			"it was migrated by a newer gateway, install that one", e.Have, e.Want)
	}
	return fmt.Sprintf("store: the database has schema version %d, this gateway needs %d: "+
		`run "gateway migrate up"`, e.Have, e.Want)
}
