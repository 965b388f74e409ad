// Package audit records what happens in a deployment for those who answer for
// it: who connected, who was refused and why, what operators did.
//
// [Recorder] takes events without waiting, whoever floods it, and writes them to
// the store in batches. It keeps count: every event is in exactly one record,
// alone, together with its like, or in the number of those that found no room.
// It decides nothing, and sees no payload and no credential.
package audit
