// Package wiring is what an operator declares of topics and routes: how much of
// a topic's messages may wait and what happens then, and which messages are
// forwarded from where to where.
//
// It checks declarations and answers what was declared for an address. A mode is
// inferred from who reads ([Infer]), a policy that its mode cannot keep is a
// [Fault], and so are routes that make a cycle. It reads no file, which package
// config does, and forwards nothing, which package router does.
package wiring
