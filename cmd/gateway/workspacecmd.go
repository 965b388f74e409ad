package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
)

type workspaceCmd struct {
	Create  workspaceCreateCmd  `cmd:"" help:"Create a workspace."`
	List    workspaceListCmd    `cmd:"" help:"List the workspaces."`
	Delete  workspaceDeleteCmd  `cmd:"" help:"Delete a workspace: its sessions end, its members are forgotten, API keys that are good in it alone are revoked, what was sent to it is delivered to nobody."`
	Members workspaceMembersCmd `cmd:"" help:"List who is in a workspace, and put users in or keep them out."`
}

type workspaceCreateCmd struct {
	Name string `arg:"" help:"Its name."`
	outputFlag
	adminFlags
}

func (c *workspaceCreateCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		made, err := once(ctx, o, o.CreateWorkspace, &adminv1.CreateWorkspaceRequest{Name: c.Name})
		if err != nil {
			return err
		}
		if !made.GetCreated() {
			fmt.Fprintf(p.stderr, "the workspace was there\n")
		}
		return printWorkspaces(p, c.Output, []*adminv1.Workspace{made.GetWorkspace()})
	})
}

func printWorkspaces(p *program, output string, list []*adminv1.Workspace) error {
	return table(p, output, list, []string{"WORKSPACE", "CREATED", "BY"}, func(w *adminv1.Workspace) []string {
		return []string{w.GetName(), ago(w.GetCreatedAt()), w.GetCreatedBy()}
	})
}

type workspaceListCmd struct {
	outputFlag
	adminFlags
}

func (c *workspaceListCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		all, err := gather(ctx, o, o.ListWorkspaces, &adminv1.ListWorkspacesRequest{}, everything, (*adminv1.ListWorkspacesResponse).GetWorkspaces)
		if err != nil {
			return err
		}
		return printWorkspaces(p, c.Output, all)
	})
}

type workspaceDeleteCmd struct {
	Name string `arg:"" help:"Its name."`
	adminFlags
}

func (c *workspaceDeleteCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		done, err := once(ctx, o, o.DeleteWorkspace, &adminv1.DeleteWorkspaceRequest{Name: c.Name})
		if err != nil {
			return err
		}
		fmt.Fprintf(p.stdout, "%s is deleted\n", printable(c.Name))
		if n := len(done.GetRevokedKeys()); n > 0 {
			fmt.Fprintf(p.stdout, "%s: %s\n", counted(int64(n), "API key was good in it alone, and is revoked", "API keys were good in it alone, and are revoked"), printable(strings.Join(done.GetRevokedKeys(), ", ")))
		}
		for _, w := range done.GetWarnings() {
			fmt.Fprintf(p.stderr, "gateway: warning: %s\n", lines(w))
		}
		return nil
	})
}

type workspaceMembersCmd struct {
	Workspace string   `arg:"" help:"The workspace."`
	Add       []string `sep:"none" placeholder:"USER" help:"Make this user a member, with or without a credential that says so."`
	Remove    []string `sep:"none" placeholder:"USER" help:"Keep this user out, whatever their credentials say; their sessions in the workspace end."`
	Unrule    []string `sep:"none" placeholder:"USER" help:"Leave it to this user's credentials again."`
	outputFlag
	adminFlags
}

// Help says what the columns mean.
func (*workspaceMembersCmd) Help() string {
	return "RULING is what an operator said with --add (in) or --remove (out); it counts until it is taken back with --unrule. " +
		"Without a ruling (none) who connected with a credential for the workspace is a member as long as that is valid: CREDENTIAL UNTIL."
}

// check refuses what says two things of one user.
func (c *workspaceMembersCmd) check() error {
	said := map[string]string{}
	for _, x := range []struct {
		flag  string
		users []string
	}{{"--add", c.Add}, {"--remove", c.Remove}, {"--unrule", c.Unrule}} {
		for _, user := range x.users {
			if before := said[user]; before != "" && before != x.flag {
				return usagef("%s and %s are both given for %q", before, x.flag, user)
			}
			said[user] = x.flag
		}
	}
	return nil
}

func (c *workspaceMembersCmd) Run(p *program) error {
	if err := c.check(); err != nil {
		return err
	}
	return c.with(p, func(ctx context.Context, o *operator) error {
		for _, x := range []struct {
			users  []string
			ruling string
		}{{c.Add, "in"}, {c.Remove, "out"}, {c.Unrule, "none"}} {
			for _, user := range x.users {
				done, err := once(ctx, o, o.RuleMember, &adminv1.RuleMemberRequest{Workspace: c.Workspace, User: user, Ruling: x.ruling})
				if err != nil {
					return err
				}
				if x.ruling == "out" && !done.GetWasMember() {
					fmt.Fprintf(p.stderr, "%s was no member; kept out from now on, until --unrule %s or --add %s\n", printable(user), printable(user), printable(user))
				}
			}
		}
		all, err := gather(ctx, o, o.ListMembers, &adminv1.ListMembersRequest{Workspace: c.Workspace}, everything, (*adminv1.ListMembersResponse).GetMembers)
		if err != nil {
			return err
		}
		return table(p, c.Output, all, []string{"USER", "MEMBER", "RULING", "CREDENTIAL UNTIL"}, func(m *adminv1.Member) []string {
			member := "no"
			if m.GetMember() {
				member = "yes"
			}
			until := ""
			if m.GetUntil() > 0 {
				until = time.Unix(m.GetUntil(), 0).UTC().Format(time.RFC3339)
			}
			return []string{m.GetUser(), member, m.GetRuling(), until}
		})
	})
}
