package store

// Subject is something that the store keeps and gateways have copies of.
type Subject string

// The subjects.
const (
	// SubjectMembers is who is in which workspace.
	SubjectMembers Subject = "members"
	// SubjectWorkspaces is which workspaces there are.
	SubjectWorkspaces Subject = "workspaces"
	// SubjectRules is who may do what beyond the matrix.
	SubjectRules Subject = "rules"
	// SubjectKeys is API keys, and which credentials were revoked.
	SubjectKeys Subject = "keys"
	// SubjectGrants is who may act for whom.
	SubjectGrants Subject = "grants"
	// SubjectImplementations is what can be started, and how.
	SubjectImplementations Subject = "implementations"
)

// Feed says that something has changed, by this gateway or another one, so that
// copies are made anew. It does not say what: who is told asks the store.
// Implementations are safe for concurrent use and never make a writer wait for
// a follower.
type Feed interface {
	// Follow returns a channel that gets a value soon after something of the
	// subjects has changed, or may have: once at the beginning, whenever a
	// connection was lost, again and again while it is, and from time to time.
	// Who reads the store after taking a value sees all changes that it stands
	// for. Values that are not taken become one. No subjects are all. The
	// channel is never closed; stop ends the following.
	//
	// As long as the database answers, a change is told of within 1.6 s on
	// every gateway, and mostly at once; see package mirror for what is made of
	// that.
	Follow(subjects ...Subject) (changed <-chan struct{}, stop func())
}
