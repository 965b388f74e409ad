// Package claims decides which of several gateways hands a message of
// competing workers to one of its own (delivery rules T1 to T3).
//
// All gateways read the same log, so each sees every message of an address. A
// group is an address and what is decided of its messages: a floor, up to
// which everything is decided, and the open claims, which are owned by a
// gateway or free. A gateway claims in the order of the log and offers every
// message behind the floor that it knows; so whatever lies at or below the
// floor has been claimed once, and needs a record only until it is done. That
// bounds what is kept by what workers have open.
//
// The Redis implementation is part of internal/presence/redis; a gateway that
// is alone needs none.
package claims
