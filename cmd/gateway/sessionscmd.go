package main

import (
	"context"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
)

type sessionsCmd struct {
	List sessionsListCmd `cmd:"" help:"List who is connected, to whichever gateway."`
	Kick sessionsKickCmd `cmd:"" help:"End a session. Its client is told not to come back by itself; to keep somebody out, revoke the credential."`
}

type sessionsListCmd struct {
	Workspace string `placeholder:"W" help:"Only those that are in this workspace."`
	Kind      string `placeholder:"KIND" help:"Only those of this kind: agent, unique_task, non_unique_task, user, workflow_engine, metrics_bridge, orchestrator, service, bridge."`
	Identity  string `placeholder:"PREFIX" help:"Only those whose identity begins so, such as ag::w::."`
	outputFlag
	adminFlags
}

func (c *sessionsListCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		request := &adminv1.ListSessionsRequest{Workspace: c.Workspace, Kind: c.Kind, IdentityPrefix: c.Identity}
		var unanswered []string
		all, err := gather(ctx, o, o.ListSessions, request, everything, func(page *adminv1.ListSessionsResponse) []*adminv1.Session {
			unanswered = page.GetUnanswered()
			return page.GetSessions()
		})
		if err != nil {
			return err
		}
		if err := printSessions(p, c.Output, all); err != nil {
			return err
		}
		return o.incomplete(unanswered)
	})
}

func printSessions(p *program, output string, all []*adminv1.Session) error {
	return table(p, output, all, []string{"IDENTITY", "KIND", "WORKSPACE", "GATEWAY", "CONNECTED", "SESSION"}, func(s *adminv1.Session) []string {
		return []string{s.GetIdentity(), s.GetKind(), s.GetWorkspace(), s.GetGateway(), ago(s.GetConnectedAt()), s.GetSessionId()}
	})
}

type sessionsKickCmd struct {
	Target string `arg:"" name:"session-or-identity" help:"A session id, or an identity such as ag::w::i::s."`
	Reason string `placeholder:"TEXT" help:"What the client is told."`
	outputFlag
	adminFlags
}

func (c *sessionsKickCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, o *operator) error {
		done, err := once(ctx, o, o.KickSession, &adminv1.KickSessionRequest{Target: c.Target, Reason: c.Reason})
		if err != nil {
			return err
		}
		return printSessions(p, c.Output, done.GetSessions())
	})
}
