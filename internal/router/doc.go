// Package router is the way of a message: from a sender through the decision
// and the stamp into the log, and from the log, or straight from the sender,
// to the sessions that its address reaches.
//
// A [Router] has one partition object for each partition of the log. Each owns
// a writer and a tail, knows which sessions of this gateway read which
// addresses, and keeps the order between what is handed over live and what
// the tail shows (delivery rules M and S).
//
// The router does no I/O on the way of a message: it appends to the writer's
// memory and to mailboxes. It knows nothing of gRPC streams and credentials.
package router
