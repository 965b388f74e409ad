package presence

// Instance is a gateway that takes part.
type Instance struct {
	// ID is unique to the process: drawn at its start, never configured.
	ID string
	// Name is the configured instance id.
	Name string
}

// Entry says who holds a name.
type Entry struct {
	SessionID string
	// Instance is the holder's gateway.
	Instance string
	Epoch    uint64
}

// Directory is this gateway's own copy of who holds what. It answers from
// memory. Implementations are safe for concurrent use.
type Directory interface {
	// Held reports whether some session holds name. certain says that the
	// answer was true at some moment in the last [Staleness]; without it held
	// is true for this gateway's own names only, and every other one counts
	// as not held (delivery rule C7).
	Held(name string) (held, certain bool)
	// Lookup returns who holds name.
	Lookup(name string) (Entry, bool)
	// Self returns this gateway.
	Self() Instance
	// Instances returns the live gateways, this one included. Without
	// certain the list is what was last known.
	Instances() (list []Instance, certain bool)
}
