// Package presence says who is connected, on which gateway, and who may act
// under a name: a lease per identity, so that one session at a time speaks and
// listens under it (delivery rules L1 to L5), and a directory of all of them
// (C7).
//
// It knows names and numbers only. What a lease entitles to is decided by the
// session that holds it; what a watermark or a notice means, by who wrote it.
// Two packages implement it: presence/local within one process, presence/redis
// for gateways that share a Redis.
package presence
