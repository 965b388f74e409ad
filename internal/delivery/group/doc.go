// Package group is how a message reaches exactly one of those who compete for
// it: a bounded queue for each group of workers, and who holds what of it.
//
// A message is in the queue, or held by one worker, or done. What a worker gives
// back, or leaves behind, goes to the front of the queue and to another, so many
// times at most; then it is dead.
//
// The groups of one address are a [Set]: all of them admit a message or none
// does, and none keeps a place for one that waits for another group.
package group
