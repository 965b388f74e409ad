package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
)

type grantCmd struct {
	List   grantListCmd   `cmd:"" help:"List who may act for whom."`
	Revoke grantRevokeCmd `cmd:"" help:"End a grant, and all that derive from it, on every gateway."`
	Issue  grantIssueCmd  `cmd:"" help:"Let somebody act for a user or another principal that need not be connected."`
}

type grantListCmd struct {
	Subject  string `placeholder:"WHO" help:"Only grants for acting for this identity or user id."`
	Delegate string `placeholder:"WHO" help:"Only grants of this identity or user id."`
	Ended    bool   `help:"Also those that were revoked or have expired."`
	outputFlag
	adminFlags
}

func (c *grantListCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		all, err := gather(ctx, o, o.ListGrants, &adminv1.ListGrantsRequest{SubjectId: c.Subject, DelegateId: c.Delegate, IncludeEnded: c.Ended}, everything, (*adminv1.ListGrantsResponse).GetGrants)
		if err != nil {
			return err
		}
		return printGrants(p, c.Output, all)
	})
}

func printGrants(p *program, output string, list []*adminv1.Grant) error {
	return table(p, output, list, []string{"GRANT", "SUBJECT", "DELEGATE", "WORKSPACES", "ADDRESSES", "OPERATIONS", "HOPS", "EXPIRES", "STATE", "BY"}, func(g *adminv1.Grant) []string {
		return []string{
			g.GetGrantId(), g.GetSubjectId(), g.GetDelegateId(), strings.Join(g.GetWorkspaceScope(), " "), orAll(g.GetAddresses()), orAll(g.GetOperationScope()),
			fmt.Sprint(g.GetRemainingHops()), time.Unix(g.GetExpiresAt(), 0).UTC().Format(time.RFC3339), grantState(g, time.Now()), g.GetIssuedBy(),
		}
	})
}

func orAll(list []string) string {
	if len(list) == 0 {
		return "*"
	}
	return strings.Join(list, " ")
}

func grantState(g *adminv1.Grant, now time.Time) string {
	switch {
	case g.GetRevokedAt() != 0:
		return "revoked"
	case g.GetExpiresAt() <= now.Unix():
		return "expired"
	}
	return "holds"
}

type grantRevokeCmd struct {
	Grant  string `arg:"" help:"The grant's id, as grant list shows it."`
	Reason string `placeholder:"TEXT" help:"Why, for those who are told."`
	outputFlag
	adminFlags
}

func (c *grantRevokeCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		revoked, err := once(ctx, o, o.RevokeGrant, &adminv1.RevokeGrantRequest{GrantId: c.Grant, Reason: c.Reason})
		if err != nil {
			return err
		}
		if n := revoked.GetRevoked(); n > 1 {
			fmt.Fprintf(p.stderr, "%d grants that derive from it were revoked, too\n", n-1)
		} else if n == 0 {
			fmt.Fprintf(p.stderr, "it was revoked before\n")
		}
		return printGrants(p, c.Output, []*adminv1.Grant{revoked.GetGrant()})
	})
}

type grantIssueCmd struct {
	Subject   string         `required:"" placeholder:"WHO" help:"For whom: a user's id, or an identity such as ag::W::I::S."`
	Delegate  string         `required:"" placeholder:"IDENTITY" help:"Who may act: an identity, or a user's id."`
	Workspace []string       `sep:"none" placeholder:"W" help:"Where; may be repeated. Needed for users and services."`
	Address   []string       `sep:"none" placeholder:"PATTERN" help:"Which addresses it reaches: 'ag::W::*'; may be repeated (default: all)."`
	Operation []string       `sep:"none" placeholder:"OP" help:"What it is for: send, task:create, kv:read …; may be repeated (default: everything)."`
	Level     int32          `placeholder:"N" help:"The access level: 10 read, 20 read-write, 30 manage, 40 admin (default: 20, which is what sends and tasks take)."`
	Hops      int32          `placeholder:"N" help:"How often it may be passed on (default: not at all)."`
	TTL       *time.Duration `name:"ttl" placeholder:"DURATION" help:"How long it is good (default: grants.lifetime)."`
	Reason    string         `placeholder:"TEXT" help:"Why."`
	outputFlag
	adminFlags
}

// identityTypes are the types of principals by the first segment of an identity.
var identityTypes = map[string]string{
	"ag": "agent", "tu": "unique_task", "ta": "non_unique_task", "us": "user", "sv": "service", "br": "bridge", "orc": "orchestrator", "wfe": "workflow_engine",
}

// grantFlags are the flags for the gateway's names of what they say.
var grantFlags = strings.NewReplacer(
	"workspace_scope", "--workspace", "resource_scope", "--address", "operation_scope", "--operation", "max_access_level", "--level",
	"remaining_hops", "--hops", "expires_at", "--ttl", "audience_type", "--delegate", "audience_id", "--delegate",
)

// byFlags has an error about what was typed name the flags.
func byFlags(err error) error {
	if usage, ok := errors.AsType[usageError](err); ok {
		return usageError{grantFlags.Replace(usage.text)}
	}
	return err
}

// kindOf is the type of who is named: without "::" it is a user's id.
func kindOf(who string) string {
	prefix, _, identity := strings.Cut(who, "::")
	if !identity {
		return "user"
	}
	return identityTypes[prefix]
}

func (c *grantIssueCmd) Run(p *program) error {
	if c.TTL != nil && *c.TTL <= 0 {
		return usagef("--ttl must be above 0")
	}
	return c.with(p, func(ctx context.Context, o *operator) error {
		g := &adminv1.Grant{
			SubjectType: kindOf(c.Subject), SubjectId: c.Subject, DelegateType: kindOf(c.Delegate), DelegateId: c.Delegate, WorkspaceScope: c.Workspace,
			Addresses: c.Address, OperationScope: c.Operation, MaxAccessLevel: c.Level, RemainingHops: c.Hops, Reason: c.Reason,
		}
		if c.TTL != nil {
			g.ExpiresAt = time.Now().Add(*c.TTL).Unix()
		}
		issued, err := once(ctx, o, o.IssueGrant, &adminv1.IssueGrantRequest{Grant: g})
		if err != nil {
			return byFlags(err)
		}
		return printGrants(p, c.Output, []*adminv1.Grant{issued.GetGrant()})
	})
}
