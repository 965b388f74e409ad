// Package policy is the rules of operators: what they may look like, which of
// them match, what they contradict, and why something was refused.
//
// A rule names principals by a pattern over identity strings, an action, and
// addresses by another pattern. All rules together are compiled to a [Set],
// which answers without a lock, a wait or an allocation, in a time that hardly
// depends on how many there are. A [Book] is a gateway's copy of what the store
// keeps; it implements [acl.Rules], and is what operators' commands use.
//
// That a denial wins, and what an allowance can open, is decided by package acl.
package policy
