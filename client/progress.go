package client

import (
	"context"
	"maps"
	"math"
	"time"
	"unicode/utf8"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// ProgressKind says what sort of work is reported on.
type ProgressKind int32

// The kinds. TaskProgress is what the gateway itself says of tasks.
const (
	ChatProgress = ProgressKind(aetherv1.ProgressKind_PROGRESS_KIND_CHAT)
	AppProgress  = ProgressKind(aetherv1.ProgressKind_PROGRESS_KIND_APP)
	TaskProgress = ProgressKind(aetherv1.ProgressKind_PROGRESS_KIND_TASK)
)

// Step is the step that work is at. Numbers are not negative.
type Step struct {
	Name, Detail, Type string
	Number, Of         int
}

// Progress is how far some work is. To report it, fill in what there is to say:
// the zero value says that something has begun.
type Progress struct {
	// TaskID is the task that it is of, one that this principal works on. Empty:
	// of none.
	TaskID  string
	State   string
	Summary string
	// Completion is 0 to 1.
	Completion float64
	Step       Step
	// Recipient is who alone is to see it: the identity of an agent, a task or a
	// user's window in the workspace, or us::user for all windows of a user.
	// Empty: all agents and users of the workspace.
	Recipient string
	// RequestID is carried to those who see it.
	RequestID string
	Metadata  map[string]string
	Kind      ProgressKind

	// Source is who reported it, verified by the gateway, as are Workspace and
	// Time; ID is the gateway's. All are set on what has come and ignored when
	// reporting.
	Source, Workspace, ID string
	Time                  time.Time
}

// Progressed is a notice: somebody's progress, or what the gateway says of a
// task. It comes to agents and users; what is addressed to this principal alone
// comes to all kinds.
type Progressed struct{ Progress Progress }

func (Progressed) notice() {}

// Report tells of progress. It waits until the report is written; the gateway
// answers refusals only, as [Refused] notices. Reports are not repeated after a
// break, and are refused between two sessions. Only agents, tasks and services
// report.
func (c *Client) Report(ctx context.Context, p Progress) error {
	if p.Completion < 0 || p.Completion > 1 || math.IsNaN(p.Completion) {
		return refused(CodeInvalidArgument, "the completion is %v, and not 0 to 1", p.Completion)
	}
	if p.Step.Number < 0 || p.Step.Of < 0 || p.Step.Number > math.MaxInt32 || p.Step.Of > math.MaxInt32 {
		return refused(CodeInvalidArgument, "the numbers of a step are negative or too large")
	}
	for _, s := range []string{
		p.TaskID, p.State, p.Summary, p.Recipient, p.RequestID, p.Step.Name, p.Step.Detail, p.Step.Type,
	} {
		if !utf8.ValidString(s) {
			return refused(CodeInvalidArgument, "a text of the progress is not valid UTF-8")
		}
	}
	for k, v := range p.Metadata {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return refused(CodeInvalidArgument, "the metadata is not valid UTF-8")
		}
	}
	r := &aetherv1.ProgressReport{
		TaskId: p.TaskID, State: p.State, Completion: p.Completion, Summary: p.Summary, Recipient: p.Recipient,
		RequestId: p.RequestID, Metadata: maps.Clone(p.Metadata), Kind: aetherv1.ProgressKind(p.Kind),
	}
	if p.Step != (Step{}) {
		r.Step = &aetherv1.ProgressStep{
			Name: p.Step.Name, Detail: p.Step.Detail, StepType: p.Step.Type, Sequence: int32(p.Step.Number), TotalSteps: int32(p.Step.Of),
		}
	}
	l, err := c.connected()
	if err != nil {
		return err
	}
	return l.sendFrame(ctx, &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Progress{Progress: r}})
}

func newProgress(u *aetherv1.ProgressUpdate) Progress {
	p := Progress{
		TaskID: u.GetTaskId(), State: u.GetState(), Completion: u.GetCompletion(), Summary: u.GetSummary(),
		Recipient: u.GetRecipient(), RequestID: u.GetRequestId(), Metadata: u.GetMetadata(), Kind: ProgressKind(u.GetKind()),
		Source: u.GetSource(), Workspace: u.GetWorkspace(), ID: u.GetMessageId(),
		Step: Step{
			Name: u.GetStep().GetName(), Detail: u.GetStep().GetDetail(), Type: u.GetStep().GetStepType(),
			Number: int(u.GetStep().GetSequence()), Of: int(u.GetStep().GetTotalSteps()),
		},
	}
	if ms := u.GetTimestampMs(); ms != 0 {
		p.Time = time.UnixMilli(ms)
	}
	return p
}

// connected is the current link.
func (c *Client) connected() (*link, error) {
	select {
	case <-c.done:
		return nil, c.endError()
	default:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current == nil {
		return nil, broken("not connected at the moment")
	}
	return c.current, nil
}
