// Package address is the grammar of addresses: `prefix::segment::…`, the names
// of everything that a message can be sent to.
//
// An address is parsed once, where it enters the process, into the comparable
// value [Address]; nothing else in the program splits on `::`. The package
// imports nothing of ours, performs no I/O and knows neither who may send where
// (package acl) nor where an address is stored.
//
// The grammar: 1–256 Unicode code points in all; each segment is valid UTF-8 of
// 1–128 bytes without white space (Unicode property White_Space), control
// characters (category Cc), `*`, `#`, `>` or `::`, and neither begins nor ends
// with a colon. Addresses are compared byte for byte; there is no case folding
// and no normalisation. `metric::*` is the one address with a wildcard.
//
// It refuses patterns: filters and rule patterns have grammars of their own.
package address
