package store

import (
	"context"
	"time"
)

// Session is a session that reads an address under a lease.
type Session struct {
	Identity, Address string
	// Workspace is whose quota counts the mark.
	Workspace string
	// Epoch is the fencing number of the lease.
	Epoch uint64
}

// Mark is how the last session of an identity on an address ended. The zero
// value is that of one which did not end clean, and of none.
type Mark struct {
	// Clean says that the session ended live and fully acknowledged (delivery
	// rule C5). The other fields are zero if it did not.
	Clean bool
	// Position is the one that the session committed at its end. It is not
	// above the identity's committed position.
	Position uint64
	// At is when it ended, by the clock of its gateway.
	At time.Time
}

// Marks keeps how sessions ended. What it guards by epoch it does as
// [Positions] does. Implementations are safe for concurrent use, also by
// several gateways; a method that returned nil has made its change durable.
type Marks interface {
	// BeginSession returns how the last session ended and marks this one as
	// not ended, in one step, before anything is delivered in it (delivery
	// rule C5). From then on nothing of an older epoch changes the mark or the
	// committed position. It returns [ErrFenced] if a newer epoch has been
	// here. It may be repeated: until the session has ended, the answer stays
	// the same.
	BeginSession(ctx context.Context, s Session) (Mark, error)
	// CommitClean stores final positions as Commit does and in the same
	// transaction marks their sessions as ended clean up to there. One whose
	// epoch is below the stored one changes nothing and is no error. The
	// errors are Commit's.
	CommitClean(ctx context.Context, commits []Commit) error
	// TouchSessions makes the marks and committed positions of sessions that
	// go on as new as now, so that those of a quiet one do not expire under
	// it. A session that is not the last one any more is left as it is.
	TouchSessions(ctx context.Context, sessions []Session) error
	// Mark returns how the last session ended, and changes nothing. It is not
	// clean while one runs.
	Mark(ctx context.Context, identity, address string) (Mark, error)
	// ExpireMarks removes marks that no session began, ended or touched since
	// before, and returns how many. Marks and positions live longer than the
	// mail that the log holds, by the time between two touches.
	ExpireMarks(ctx context.Context, before time.Time) (int64, error)
	// CountMarks returns how many marks there are, by workspace. A workspace
	// without marks is not in it.
	CountMarks(ctx context.Context) (map[string]int64, error)
}
