package client

import (
	"context"
	"maps"

	"github.com/google/uuid"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Assignment is a start that the gateway asks an orchestrator for: whose mail
// waits, and the credential with which that one is to connect.
type Assignment struct {
	// TaskID is the same for all attempts of a start; Type what sort of task it is.
	TaskID, Type string
	// Identity is who is to connect, as [Agent] or [UniqueTask] of Workspace,
	// Implementation and Specifier.
	Identity, Workspace, Implementation, Specifier string
	// Profile is what this orchestrator has announced and the registry asks for.
	Profile string
	// Params are the launch parameters, without the token.
	Params map[string]string
	// Token is the worker's credential, for [Options.TaskToken]: good for this
	// identity until the task ends or is tried anew. It must be neither logged nor
	// shown to others, as those who can see a process's arguments.
	Token string
	// Metadata and Payload are what the task's creator said.
	Metadata map[string]string
	Payload  []byte
}

// Assigned is the notice of an [Assignment]. An orchestrator gets one for each
// start; of one that it does not see the deadline passes, and it comes again.
type Assigned struct{ Assignment *Assignment }

func (Assigned) notice() {}

const tokenParam = "auth_token"

func newAssignment(a *aetherv1.TaskAssignment) *Assignment {
	x := &Assignment{
		TaskID: a.GetTaskId(), Type: a.GetTaskType(), Identity: a.GetAssignedTo(),
		Workspace: a.GetWorkspace(), Implementation: a.GetTargetImplementation(), Specifier: a.GetSpecifier(),
		Profile: a.GetProfile(), Params: maps.Clone(a.GetLaunchParams()), Token: a.GetLaunchParams()[tokenParam],
		Metadata: a.GetMetadata(), Payload: a.GetPayload(),
	}
	delete(x.Params, tokenParam)
	return x
}

// RejectStart says that an orchestrator cannot start what it was assigned: it is
// tried again, at another orchestrator if there is one, as long as there are
// attempts left. The answer comes as a [Frame].
func (c *Client) RejectStart(ctx context.Context, a *Assignment, reason string) error {
	return c.SendFrame(ctx, &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_TaskOp{TaskOp: &aetherv1.TaskOperation{
		Op: aetherv1.TaskOperation_OP_TYPE_REJECT, TaskId: a.TaskID, Reason: reason, RequestId: uuid.NewString(),
	}}})
}
