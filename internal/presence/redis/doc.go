// Package redis keeps leases in a Redis that gateways share.
//
// What Redis holds may be lost: holders register again, and until they have had
// the time nothing new is handed out (delivery rule L1). What a gateway may do
// while Redis is away is decided by its own clock alone (L2). No call waits for
// Redis longer than a second, and none at all is made while the last heartbeat
// has failed.
package redis
