package main

import (
	"context"
	"fmt"
	"strconv"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
)

type ruleCmd struct {
	Add     ruleAddCmd     `cmd:"" help:"Add a rule. A denial always wins; an allowance opens services, bridges and other workspaces."`
	List    ruleListCmd    `cmd:"" help:"List the rules."`
	Remove  ruleRemoveCmd  `cmd:"" help:"Remove a rule."`
	Explain ruleExplainCmd `cmd:"" help:"Say why somebody may, or may not, send to an address."`
}

type ruleAddCmd struct {
	Effect    string `arg:"" enum:"allow,deny" help:"allow or deny."`
	Principal string `required:"" placeholder:"PATTERN" help:"Whom it is about, by a pattern over identities: 'us::alice::*', 'ag::w::*::*'."`
	Address   string `required:"" placeholder:"PATTERN" help:"Which addresses it is about: 'sv::billing::*'."`
	Action    string `default:"send" placeholder:"ACTION" help:"send, observe, kv:read, kv:write, task:manage, grant:issue or status:read (default: send)."`
	Grammar   string `default:"strict" enum:"strict,subtree" help:"How the patterns are read: strict, '*' is one segment; subtree, a last '*' is one or more (default: strict)."`
	Note      string `placeholder:"TEXT" help:"Why."`
	outputFlag
	adminFlags
}

func (c *ruleAddCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		added, err := once(ctx, o, o.AddRule, &adminv1.AddRuleRequest{Rule: &adminv1.Rule{
			Effect: c.Effect, Principal: c.Principal, Action: c.Action, Address: c.Address, Grammar: c.Grammar, Note: c.Note,
		}})
		if err != nil {
			return err
		}
		if !added.GetCreated() {
			fmt.Fprintf(p.stderr, "there was a rule that says the same\n")
		}
		for _, w := range added.GetWarnings() {
			fmt.Fprintf(p.stderr, "gateway: warning: %s\n", lines(w.GetText()))
		}
		return printRules(p, c.Output, []*adminv1.Rule{added.GetRule()})
	})
}

func printRules(p *program, output string, list []*adminv1.Rule) error {
	return table(p, output, list, []string{"ID", "EFFECT", "PRINCIPAL", "ACTION", "ADDRESS", "GRAMMAR", "BY", "NOTE"}, func(r *adminv1.Rule) []string {
		return []string{
			strconv.FormatInt(r.GetId(), 10), r.GetEffect(), r.GetPrincipal(), r.GetAction(), r.GetAddress(), r.GetGrammar(), r.GetCreatedBy(), r.GetNote(),
		}
	})
}

type ruleListCmd struct {
	outputFlag
	adminFlags
}

func (c *ruleListCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		all, err := gather(ctx, o, o.ListRules, &adminv1.ListRulesRequest{}, everything, (*adminv1.ListRulesResponse).GetRules)
		if err != nil {
			return err
		}
		return printRules(p, c.Output, all)
	})
}

type ruleRemoveCmd struct {
	ID int64 `arg:"" help:"The rule's id, as rule list shows it."`
	outputFlag
	adminFlags
}

func (c *ruleRemoveCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		removed, err := once(ctx, o, o.RemoveRule, &adminv1.RemoveRuleRequest{Id: c.ID})
		if err != nil {
			return err
		}
		return printRules(p, c.Output, []*adminv1.Rule{removed.GetRule()})
	})
}

type ruleExplainCmd struct {
	Identity  string   `arg:"" help:"Who would send, such as us::alice::cli."`
	Address   string   `arg:"" help:"To whom."`
	Workspace []string `sep:"none" placeholder:"W" help:"A workspace of its credential, '*' for all; of a user the first is where it is (default: where its session is, else the address's)."`
	outputFlag
	adminFlags
}

func (c *ruleExplainCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		e, err := once(ctx, o, o.ExplainSend, &adminv1.ExplainSendRequest{Identity: c.Identity, Address: c.Address, Workspaces: c.Workspace})
		if err != nil {
			return err
		}
		if c.Output == "json" {
			return table(p, c.Output, []*adminv1.ExplainSendResponse{e}, nil, nil)
		}
		switch e.GetWorkspaceFrom() {
		case "session":
			fmt.Fprintf(p.stdout, "%s is in %s\n", printable(c.Identity), printable(e.GetWorkspace()))
		case "address":
			fmt.Fprintf(p.stdout, "%s is not connected; in %s it would be\n", printable(c.Identity), printable(e.GetWorkspace()))
		}
		fmt.Fprintf(p.stdout, "%s\n", verdict("", e.GetAllowed(), e.GetReason()))
		if e.GetAllowed() != e.GetAllowedWithoutRules() {
			fmt.Fprintf(p.stdout, "%s\n", verdict("without rules ", e.GetAllowedWithoutRules(), e.GetReasonWithoutRules()))
		}
		if len(e.GetRules()) == 0 {
			fmt.Fprintln(p.stdout, "no rule matches")
			return nil
		}
		return printRules(p, c.Output, e.GetRules())
	})
}

func verdict(when string, allowed bool, reason string) string {
	if allowed {
		return when + "allowed"
	}
	return when + "refused: " + printable(reason)
}
