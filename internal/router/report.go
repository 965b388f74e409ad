package router

import (
	"math"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Bounds of a report's fields; what a report has in all is bounded as a payload
// is.
const (
	maxTaskID = 128
	maxState  = 256
)

// CheckReport refuses a report of progress that nobody could make.
func CheckReport(p *aetherv1.ProgressReport) *wireerr.Error {
	if n := len(p.GetRequestId()); n > maxRequestID {
		return wireerr.New(wireerr.InvalidArgument, "request_id has %d bytes, %d are allowed", n, maxRequestID)
	}
	if n := len(p.GetTaskId()); n > maxTaskID {
		return wireerr.New(wireerr.InvalidArgument, "task_id has %d bytes, %d are allowed", n, maxTaskID)
	}
	if n := len(p.GetState()); n > maxState {
		return wireerr.New(wireerr.InvalidArgument, "state has %d bytes, %d are allowed", n, maxState)
	}
	if c := p.GetCompletion(); math.IsNaN(c) || c < 0 || c > 1 {
		return wireerr.New(wireerr.InvalidArgument, "completion must be 0 to 1")
	}
	if _, known := aetherv1.ProgressKind_name[int32(p.GetKind())]; !known {
		return wireerr.New(wireerr.InvalidArgument, "kind %d is unknown", p.GetKind())
	}
	if s := p.GetStep(); s.GetSequence() < 0 || s.GetTotalSteps() < 0 {
		return wireerr.New(wireerr.InvalidArgument, "the numbers of a step are not negative")
	}
	return checkMetadata(p.GetMetadata())
}

// Report publishes a report of progress, which [CheckReport] has found good, in
// a workspace; empty is the sender's own, or the one that a sender without one
// can only mean. It returns before the report is stored; nothing is answered
// unless that fails. A refusal is returned, and nothing has happened then.
func (s *Sender) Report(p *aetherv1.ProgressReport, workspace string) *wireerr.Error {
	s.r.stats.Reports.Add(1)
	err := s.report(p, workspace)
	if err != nil {
		s.r.stats.Refused.Add(1)
	}
	return err
}

func (s *Sender) report(p *aetherv1.ProgressReport, workspace string) *wireerr.Error {
	if !s.principal.Kind.Reports() {
		return wireerr.New(wireerr.PermissionDenied, "only agents, tasks and services report progress")
	}
	recipient, err := parseRecipient(p.GetRecipient())
	if err != nil {
		return err
	}
	if workspace, err = s.reportsIn(workspace, recipient); err != nil {
		return err
	}
	to, bad := address.Progress(workspace)
	if bad != nil {
		return wireerr.New(wireerr.InvalidArgument, "the workspace of the progress: %v", bad)
	}
	if d := acl.DecideProgress(s.principal, to, s.r.rules); !d.Allowed {
		return wireerr.New(wireerr.PermissionDenied, "%s", d.Message(s.principal, to))
	}
	if err := s.decideRecipient(recipient, workspace); err != nil {
		return err
	}
	e, err := s.r.progress(to, &aetherv1.ProgressUpdate{
		Source: s.source, TaskId: p.GetTaskId(), State: p.GetState(), Completion: p.GetCompletion(), Summary: p.GetSummary(),
		Step: p.GetStep(), TimestampMs: s.r.nowMS(), Workspace: workspace, RequestId: p.GetRequestId(), Metadata: p.GetMetadata(),
		Recipient: p.GetRecipient(), Kind: p.GetKind(), MessageId: newID(),
	})
	if err != nil {
		return err
	}
	if err := s.r.checkQuota(workspace); err != nil {
		return err
	}
	if err := s.checkRates(e); err != nil {
		return err
	}
	e.Source = s.source
	d := draft{envelope: *e, requestID: p.GetRequestId(), silent: true}
	part := s.r.parts[s.r.placement.Of(e.Topic)]
	part.mu.Lock()
	defer part.mu.Unlock()
	return part.submit(s, &d)
}

// reportsIn is the workspace of a report.
func (s *Sender) reportsIn(named string, r recipient) (string, *wireerr.Error) {
	switch only, one := s.principal.Workspaces.Only(); {
	case s.principal.Kind.WorkspaceScoped():
		if named != "" && named != s.principal.Workspace {
			return "", wireerr.New(wireerr.PermissionDenied, "the task is in another workspace")
		}
		return s.principal.Workspace, nil
	case named != "":
		return named, nil
	case r.to.Workspace() != "":
		return r.to.Workspace(), nil
	case one:
		return only, nil
	}
	return "", wireerr.New(wireerr.InvalidArgument,
		"the workspace of the progress is not known: it has no task and no recipient in one, and the credential covers several")
}

// recipient is who alone is to see a report. The zero value is everybody.
type recipient struct {
	to   address.Address // of one
	user string          // all windows of a user
}

// parseRecipient reads an identity, or us::{user}.
func parseRecipient(text string) (recipient, *wireerr.Error) {
	if text == "" {
		return recipient{}, nil
	}
	if a, err := address.Parse(text); err == nil {
		switch a.Prefix() {
		case address.PrefixAgent, address.PrefixUniqueTask, address.PrefixTask, address.PrefixUser:
			return recipient{to: a}, nil
		}
	} else if user, ok := address.ParseUser(text); ok {
		return recipient{user: user}, nil
	}
	return recipient{}, wireerr.New(wireerr.InvalidArgument,
		"recipient must be the identity of an agent, a task or a user's window, or us::{user} for all windows of a user")
}

// decideRecipient refuses a recipient that is not in the workspace, or to whom
// the sender may not send.
func (s *Sender) decideRecipient(r recipient, workspace string) *wireerr.Error {
	to := r.to
	if r.user != "" {
		var err error
		if to, err = address.UserWorkspace(r.user, workspace); err != nil {
			return wireerr.New(wireerr.InvalidArgument, "recipient: %v", err)
		}
	}
	if to.IsZero() {
		return nil
	}
	if d := acl.DecideRecipient(s.principal, to, workspace, s.r.members, s.r.rules); !d.Allowed {
		return wireerr.New(wireerr.PermissionDenied, "recipient: %s", d.Message(s.principal, to))
	}
	return nil
}
