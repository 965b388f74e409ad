// Package usage counts how many bytes each workspace has in the log, so that no
// workspace can push out another's mail.
//
// Every gateway reads the whole log and counts alike; no gateway asks another.
// The counts are kept by slots of time, which go with retention, and are saved
// in the store now and then, so that a gateway that starts knows what was stored
// long before. It refuses nothing itself.
package usage
