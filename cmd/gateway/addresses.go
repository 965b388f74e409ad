package main

import (
	"errors"
	"strings"

	"github.com/aether-gateway/gateway/internal/address"
)

// forms are the forms of addresses, for those who have mistyped one.
var forms = map[address.Prefix]string{
	address.PrefixAgent:         "ag::WORKSPACE::IMPL::SPEC",
	address.PrefixUniqueTask:    "tu::WORKSPACE::IMPL::SPEC",
	address.PrefixTask:          "ta::WORKSPACE::IMPL::ID",
	address.PrefixTaskBroadcast: "tb::WORKSPACE::IMPL",
	address.PrefixUser:          "us::USER::WINDOW",
	address.PrefixUserWorkspace: "uw::USER::WORKSPACE",
	address.PrefixAllAgents:     "ga::WORKSPACE",
	address.PrefixAllUsers:      "gu::WORKSPACE",
	address.PrefixProgress:      "pg::WORKSPACE",
	address.PrefixEvent:         "event::WORKSPACE",
	address.PrefixMetric:        "metric::WORKSPACE",
	address.PrefixService:       "sv::IMPL::SPEC",
	address.PrefixBridge:        "br::IMPL::SPEC",
}

// parseAddress reads the address of a flag. The error is a usage error that
// says how such an address looks.
func parseAddress(flag, text string) (address.Address, error) {
	a, err := address.Parse(text)
	var parse *address.ParseError
	if !errors.As(err, &parse) {
		return a, nil
	}
	like := ""
	switch parse.Reason {
	case address.ReasonEmpty, address.ReasonNoSeparator, address.ReasonUnknownPrefix:
		var all []string
		for _, p := range address.Prefixes() {
			all = append(all, forms[p])
		}
		like = "; addresses are " + strings.Join(all, ", ")
	case address.ReasonTooFewSegments, address.ReasonTooManySegments, address.ReasonEmptySegment:
		for _, p := range address.Prefixes() {
			if strings.HasPrefix(text, p.String()+"::") {
				like = "; it has the form " + forms[p]
			}
		}
	}
	return a, usagef("%s: %v%s", flag, err, like)
}
