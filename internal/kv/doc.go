// Package kv is what agents, tasks and services keep for themselves: keys with
// values, counters and sets, checkpoints, and the snapshot of them that an agent
// or task begins with.
//
// It decides whose keys a request is about, whether the caller may have them,
// and what becomes of a value; rows, their locks and their accounts are the
// store's. It refuses to know sessions and streams: who calls is a [Caller], and
// what a client is told is returned to those who tell it.
package kv
