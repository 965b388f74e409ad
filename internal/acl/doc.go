// Package acl decides who may send where: the matrix of senders and address
// kinds, and the workspace rule, both as data and with denial as the default.
//
// Every path that publishes asks [Decide] before anything is stored. A decision
// takes no lock, no I/O and no allocation; the only thing that it asks of others
// is which user is in which workspace, through [Members], which its caller
// answers from memory. A refusal carries a [Reason]; the sentence for the client
// is formatted only when somebody wants it.
//
// The package imports addresses and nothing else of ours. It refuses to know
// credentials, which package auth turns into a [Principal]; sessions; and
// payloads: what an address may carry is checked where messages are stamped.
//
// Rules that an operator adds on top refine a decision through [Rules], given to
// [DecideWith]; without them [Decide] is the whole of the policy. What a rule
// can open, and that a denial wins, is decided here; which rules match, by
// package policy.
package acl
