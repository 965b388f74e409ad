package config

import (
	"regexp"
	"slices"
	"strings"
)

// clientEnv are variables of the client commands. They configure no gateway.
var clientEnv = []string{"AETHER_ADDR", "AETHER_TOKEN", "AETHER_CA", "AETHER_CERT", "AETHER_KEY"}

// clusterEnv matches what Kubernetes sets in every pod for a service that is
// itself called aether or aether-something.
var clusterEnv = regexp.MustCompile(`^AETHER_(.*_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

func envLayer(o Options) (layer, Problems) {
	l, ps := layer{}, Problems(nil)
	for _, entry := range o.Environ { // the last of two counts, as in a shell
		name, value, ok := strings.Cut(entry, "=")
		if !ok || !strings.HasPrefix(name, envPrefix) {
			continue
		}
		k := byEnv[name]
		switch {
		case k != nil && value == "":
			// An empty variable is what scripts pass for "not set".
		case k != nil:
			l[k.Name] = sourced{value, Source{Kind: FromEnvironment, Name: name}}
		case slices.Contains(clientEnv, name) || clusterEnv.MatchString(name):
		default:
			ps = append(ps, unknownEnv(name))
		}
	}
	return l, ps
}

func unknownEnv(name string) Problem {
	all := make([]string, 0, len(table))
	for i := range table {
		all = append(all, table[i].Env())
	}
	text := "no key has this variable"
	if near := suggest(name, all); near != "" {
		text += "; did you mean " + near + "?"
	} else {
		text += "; `gateway config print` lists them all"
	}
	return Problem{Key: printable(name), Source: Source{Kind: FromEnvironment}, Text: text}
}
