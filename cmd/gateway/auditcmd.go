package main

import (
	"context"
	"strconv"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
)

type auditCmd struct {
	List auditListCmd `cmd:"" help:"List who connected, who was refused and why, and what operators did; the newest first."`
}

type auditListCmd struct {
	Kind  string `placeholder:"KIND" help:"Only connect, refusal, grant (keys, revocations, grants), rule (rules, workspaces, members), operator (what else operators did), task, or audit (what was only counted)."`
	Actor string `placeholder:"WHO" help:"Only what this one did: an identity such as us::alice::cli, the subject of an operator's credential, or the host of a connection that was refused."`
	Since string `placeholder:"DURATION" help:"Only what is at most so old, such as 10m."`
	Limit int    `default:"50" placeholder:"N" help:"At most so many."`
	outputFlag
	adminFlags
}

func (c *auditListCmd) Run(p *program) error {
	request := &adminv1.ListAuditRequest{Kind: c.Kind, Actor: c.Actor}
	if c.Limit < 1 {
		return usagef("--limit must be at least 1")
	}
	var err error
	if request.SinceMs, err = sinceFlag(c.Since); err != nil {
		return err
	}
	return c.with(p, func(ctx context.Context, o *operator) error {
		all, err := gather(ctx, o, o.ListAudit, request, c.Limit, (*adminv1.ListAuditResponse).GetRecords)
		if err != nil {
			return err
		}
		return table(p, c.Output, all, []string{"AT", "KIND", "ACTOR", "ACTION", "TARGET", "OUTCOME", "TIMES", "REASON", "DETAIL"}, func(r *adminv1.AuditRecord) []string {
			return []string{
				clock(r.GetAtMs()), r.GetKind(), r.GetActor(), r.GetAction(), r.GetTarget(), r.GetOutcome(), strconv.FormatInt(r.GetCount(), 10), r.GetReason(), r.GetDetail(),
			}
		})
	})
}
