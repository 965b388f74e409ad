package policytest

import (
	"math/rand/v2"
	"slices"
	"strings"
)

// Prefixes are those of addresses.
var Prefixes = []string{"ag", "ga", "tu", "ta", "tb", "us", "uw", "gu", "event", "metric", "pg", "sv", "br"}

// Address is a well-formed address of a prefix, in a workspace where the prefix
// has one. Its user is called user.
func Address(prefix, ws, user string) string {
	switch prefix {
	case "ag", "tu", "ta":
		return prefix + "::" + ws + "::reader::r"
	case "tb":
		return "tb::" + ws + "::reader"
	case "us":
		return "us::" + user + "::win"
	case "uw":
		return "uw::" + user + "::" + ws
	case "sv", "br":
		return prefix + "::reader::" + ws
	}
	return prefix + "::" + ws
}

// Addresses are the well-formed addresses of all prefixes, in all workspaces
// and of all users, without repetition.
func Addresses(workspaces, users []string) (all []string) {
	for _, prefix := range Prefixes {
		for _, ws := range workspaces {
			for _, user := range users {
				if a := Address(prefix, ws, user); !slices.Contains(all, a) {
					all = append(all, a)
				}
			}
		}
	}
	return append(all, "metric::*", "metric::receiver0")
}

// Malformed are addresses that are none: well-formed ones, broken in every way
// that can be sent.
func Malformed(ws string) (all []string) {
	for _, prefix := range Prefixes {
		good := Address(prefix, ws, "u")
		part := strings.Split(good, "::")
		with := func(i int, s string) string {
			own := slices.Clone(part)
			own[i] = s
			return strings.Join(own, "::")
		}
		all = append(
			all, strings.ToUpper(prefix)+good[len(prefix):], " "+good, good+" ", good+"\n", good+"::", "::"+good, good+"::deeper", good+":",
			good+"::*", strings.ReplaceAll(good, "::", ":"), strings.ReplaceAll(good, "::", "."), strings.Replace(good, "::", ":::", 1),
			strings.Join(part[:len(part)-1], "::"), prefix, prefix+"::", with(0, "*"), with(0, ""), with(0, prefix+"x"),
		)
		for i := 1; i < len(part); i++ {
			all = append(all, with(i, ""), with(i, "#"), with(i, ">"), with(i, "a*"), with(i, "a b"), with(i, "a\tb"), with(i, "\u0085"), with(i, "\u3000"),
				with(i, strings.Repeat("x", 129)), with(i, "x::y"))
			if prefix != "metric" {
				all = append(all, with(i, "*"))
			}
		}
		if prefix != "us" && prefix != "sv" && prefix != "br" {
			all = append(all, strings.Replace(good, ws, "receiver1", 1))
		}
	}
	return append(all, "", "::", "*", "*::*", strings.Repeat("é", 257), "ag::"+strings.Repeat("é", 64)+"::"+strings.Repeat("é", 64)+"::"+strings.Repeat("x", 127))
}

// Rules makes up n rules that are about the identities and addresses given, in
// both grammars: as they are, with any segments replaced by wildcards, cut
// short, or with a segment that nobody has.
func Rules(r *rand.Rand, n int, identities, addresses []string) (list []Rule) {
	pattern := func(names []string, grammar string) string {
		part := strings.Split(names[r.IntN(len(names))], "::")
		for i := range part {
			switch k := r.IntN(10); {
			case k < 3 || part[i] == "*":
				part[i] = "*"
			case k == 3 && r.IntN(3) == 0:
				part[i] = "nobody"
				if i == 0 {
					part[i] = "ag"
				}
			}
		}
		if r.IntN(3) == 0 {
			part = part[:1+r.IntN(len(part))]
			if grammar == "subtree" {
				part = append(part, "*")
			}
		}
		return strings.Join(part, "::")
	}
	for range n {
		rule := Rule{Effect: "deny", Action: "send", Grammar: "strict"}
		if r.IntN(5) < 3 {
			rule.Effect = "allow"
		}
		if r.IntN(12) == 0 {
			rule.Action = "observe"
		}
		if r.IntN(2) == 0 {
			rule.Grammar = "subtree"
		}
		rule.Principal, rule.Address = pattern(identities, rule.Grammar), pattern(addresses, rule.Grammar)
		list = append(list, rule)
	}
	return list
}
