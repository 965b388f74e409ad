// Package tracker follows sends until their outcome is known: acknowledged,
// refused, or out of time.
//
// A send is registered with a deadline. Then either anybody decides it
// ([Tracker.Decide]), or a set of members is elected, each with one vote: in mode
// [First] the first vote decides, in mode [All] every member must acknowledge.
// It knows nothing of messages, addresses or gateways, and no clock: time is what
// [Tracker.Advance] is told.
package tracker
