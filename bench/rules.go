package main

import (
	"context"
	"fmt"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
	addresses "github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/policy"
	"github.com/aether-gateway/gateway/internal/store"
)

// rulesCell measures what a decision takes with many rules of operators,
// against what it takes with few. It happens in this process: a decision is a
// thousandth of what a message costs, and would not be seen from outside.
func rulesCell() cell {
	return cell{
		Name: cellRules, Title: fmt.Sprintf("decisions with %d rules and with %d", fewRules, manyRules),
		Systems: []string{nameRabbitMQ}, setup: time.Second, takes: time.Second,
		open: func(context.Context, *site, cell, int) (stage, error) { return openRules() },
	}
}

const (
	fewRules  = 10
	manyRules = 10_000
	// decisions are made with each set in turn, this many times.
	decisions = 20_000
	turns     = 10
)

type rules struct {
	few, many *policy.Set
	who       *acl.Principal
	to        []addresses.Address
}

func openRules() (*rules, error) {
	r := &rules{}
	var err error
	if r.few, err = ruleSet(fewRules); err != nil {
		return nil, err
	}
	if r.many, err = ruleSet(manyRules); err != nil {
		return nil, err
	}
	if r.who, err = policy.PrincipalOf("ag::own::impl::0"); err != nil {
		return nil, err
	}
	// What rules of both sets allow, what they deny, and what none is about.
	for _, s := range []string{
		"br::slack::0", "ag::own::secret::0", "ag::own::impl::0", "ga::own", "sv::billing::0", "ag::other0::i::s", "br::none::x", "tb::own::impl",
	} {
		a, err := addresses.Parse(s)
		if err != nil {
			return nil, err
		}
		r.to = append(r.to, a)
	}
	return r, nil
}

// ruleSet makes a set of rules as an organisation would have them, of the same
// shapes whatever their number: about single agents, implementations and
// workspaces, towards services, bridges, other workspaces and single addresses.
func ruleSet(n int) (*policy.Set, error) {
	shapes := []struct{ effect, principal, address, grammar string }{
		{"allow", "ag::own::impl::%d", "br::slack::%d", "strict"},
		{"deny", "ag::own::impl::%d", "ag::own::secret::%d", "strict"},
		{"allow", "ag::w%d::*::*", "sv::billing::%d", "strict"},
		{"deny", "us::user%d::*", "ag::own::impl%d::*", "strict"},
		{"allow", "ag::own::impl%d::*", "ag::other%d::*", "subtree"},
		{"deny", "*::w%d::*", "ga::w%d", "subtree"},
		{"allow", "sv::svc%d::*", "ag::x%d::impl::*", "strict"},
		{"deny", "ta::own::job%d::*", "*::own::impl::%d", "strict"},
		{"allow", "wfe::%d", "event::w%d", "strict"},
		{"deny", "orc::impl::%d", "tu::own::*::%d", "strict"},
	}
	list := make([]*policy.Rule, n)
	for i := range list {
		s, k := shapes[i%len(shapes)], i/len(shapes)
		r, err := policy.Compile(store.Rule{
			ID: int64(i + 1), Effect: s.effect, Principal: fmt.Sprintf(s.principal, k), Action: "send", Address: fmt.Sprintf(s.address, k), Grammar: s.grammar,
		})
		if err != nil {
			return nil, err
		}
		list[i] = r
	}
	return policy.NewSet(list), nil
}

func (r *rules) run(context.Context, string, int) (outcome, error) {
	var few, many time.Duration
	for range turns {
		few += r.time(r.few)
		many += r.time(r.many)
	}
	const n = turns * decisions
	return outcome{FewRules: float64(few) / n, ManyRules: float64(many) / n}, nil
}

func (r *rules) time(set *policy.Set) time.Duration {
	begun := time.Now()
	for i := range decisions {
		acl.DecideWith(r.who, r.to[i%len(r.to)], nil, set)
	}
	return time.Since(begun)
}

func (r *rules) close() error { return nil }

// decisions are the figures of the cell.
func (r *report) decisions() []row {
	few := r.rounds(cellRules, nameRabbitMQ, func(o *outcome) float64 { return o.FewRules })
	many := compare(fmt.Sprintf("decision with %d rules", manyRules), "ns",
		r.rounds(cellRules, nameRabbitMQ, func(o *outcome) float64 { return o.ManyRules }), fmt.Sprintf("%d rules", fewRules), few)
	many.AtMost = ceilingRules
	return []row{many}
}
