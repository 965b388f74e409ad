// Package subject is the grammar of patterns: the filters of subscribers and
// the patterns of policy rules.
//
// Three grammars become one compiled form, a [Pattern]: segments that are each
// literal or any, a tail of no, any number of, or at least one further segment,
// and guards on what is matched at all. Matching is one walk from left to right
// that allocates nothing.
//
//   - [Segmented], the public one: "*" is exactly one whole segment, a final "#"
//     is zero or more, the empty pattern takes everything. Segments may be
//     empty.
//   - [Subtree]: "*" is one segment, a trailing ".*" one or more. Empty segments
//     are refused, and what is deeper than 20 segments matches nothing.
//   - [Strict]: "*" is one segment, wherever it stands, and as many segments
//     must be there as the pattern has; else as Subtree.
//
// What is matched is never a pattern: a "*" in it is data. Everything is
// compared byte for byte.
//
// Patterns over subjects separate segments by "." ([Compile]), those over
// addresses and identities by "::" ([CompileAddress]). A [Filter] is several of
// them, and [Classes] match those of all readers of an address at once. The package knows
// segments only; what names an address may have is package address's.
package subject
