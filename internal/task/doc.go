// Package task is the life of tasks (gateway.md 13): what they are made of, the
// table of their transitions, who may see and move them, how they are handed to
// workers on whatever gateway, and what is told of them.
//
// A transition is decided on what was read and stored under the guard of its
// revision, so that of two who come at once one wins, on whatever gateway. The
// package starts nothing by itself: a task that is to start an identity is given
// to a [Starter]. It knows no sessions either: they join as workers.
package task
