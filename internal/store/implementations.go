package store

import (
	"context"
	"time"
)

// Implementation is how the workers of an implementation are started: by an
// orchestrator that announces its profile.
type Implementation struct {
	// Name is the implementation; Workspace the one that it is for, empty for
	// all that have no entry of their own.
	Name, Workspace string
	Profile         string
	// Params are the launch parameters. Those named in Overridable may be set
	// otherwise by who asks for a start.
	Params      map[string]string
	Overridable []string
	CreatedBy   string
	CreatedAt   time.Time
}

// MaxImplementations bounds how many there can be, as each gateway has a copy of
// all.
const MaxImplementations = 10_000

// Implementations keeps the registry of implementations that can be started.
// Implementations of it are safe for concurrent use, also by several gateways; a
// method that returned nil has made its change durable.
//
// Each change makes a new version of the whole. [ErrText] refuses a text.
type Implementations interface {
	// PutImplementation stores an entry, in place of one of the same name and
	// workspace, and returns it with its time. [ErrFull]: there are too many.
	PutImplementation(ctx context.Context, i Implementation) (Implementation, error)
	// RemoveImplementation removes an entry and returns it. [ErrNotFound]: there
	// is none.
	RemoveImplementation(ctx context.Context, name, workspace string) (Implementation, error)
	// Implementations returns all entries, by name and workspace, and their
	// version. It shows at least what that version has.
	Implementations(ctx context.Context) ([]Implementation, int64, error)
	// ImplementationsVersion returns the version. It is another one after each
	// change; 0 is the one of no entries ever.
	ImplementationsVersion(ctx context.Context) (int64, error)
}
