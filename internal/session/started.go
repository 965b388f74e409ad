package session

import (
	"context"
	"errors"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/orchestrator"
)

// Orchestration has those started who are not there, by orchestrators that are.
// It is an [orchestrator.Service].
type Orchestration interface {
	Join(o orchestrator.Orchestrator) (leave func(forGood bool))
	Came(ctx context.Context, w orchestrator.Worker) error
	Went(w orchestrator.Worker, clean bool)
	Context(ctx context.Context, run auth.TaskRun) (map[string]string, error)
}

// started is what a session has to do with starts.
type started struct {
	leave  func(forGood bool)   // of an orchestrator
	worker *orchestrator.Worker // of one who may have been started
	// context is what it is told of its task.
	context map[string]string
}

// maxAssignments bounds the bytes of assignments that wait for an orchestrator to
// read them; it gets no more meanwhile.
const maxAssignments = 512 << 10

// checkProfiles refuses what an orchestrator must not announce.
func checkProfiles(init *aetherv1.InitConnection) error {
	profiles := init.GetOrchestrator().GetSupportedProfiles()
	if len(profiles) > orchestrator.MaxProfiles {
		return status.Errorf(codes.InvalidArgument, "%d profiles are announced, %d are allowed", len(profiles), orchestrator.MaxProfiles)
	}
	for _, p := range profiles {
		if p == "" || len(p) > orchestrator.MaxProfile || !utf8.ValidString(p) {
			return status.Errorf(codes.InvalidArgument, "a profile needs 1 to %d bytes of UTF-8", orchestrator.MaxProfile)
		}
	}
	return nil
}

// enlist tells orchestration that a session begins: it is subscribed, and gets
// nothing yet. The error is the stream's status.
func (m *Manager) enlist(ctx context.Context, s *Session, init *aetherv1.InitConnection, c *auth.Credential) error {
	o := m.o.Orchestration
	if o == nil {
		if c.Run.Task != "" {
			return status.Error(codes.Unauthenticated, auth.ErrTaskToken.Error())
		}
		return nil
	}
	switch s.kind {
	case acl.Orchestrator:
		s.started.leave = o.Join(orchestrator.Orchestrator{
			Session: s.id, Identity: s.identity, Profiles: init.GetOrchestrator().GetSupportedProfiles(),
			Covers: func(workspace string) bool { return s.life.held.Load().credential.Scope().Covers(workspace) },
			Assign: s.assignTo,
		})
	case acl.Agent, acl.UniqueTask, acl.Task:
		w := orchestrator.Worker{Session: s.id, Identity: s.identity, Run: c.Run, Deliver: s.assignTo, End: s.taskOver}
		if err := o.Came(ctx, w); err != nil {
			return m.notCome(s, err)
		}
		s.started.worker = &w
		var err error
		if s.started.context, err = o.Context(ctx, c.Run); err != nil {
			return m.notCome(s, err)
		}
	}
	return nil
}

// notCome is the status of a worker that cannot begin.
func (m *Manager) notCome(s *Session, err error) error {
	if errors.Is(err, auth.ErrTaskToken) {
		return status.Error(codes.Unauthenticated, auth.ErrTaskToken.Error())
	}
	m.o.Logger.Warn("a worker's task could not be begun", "identity", s.identity, "error", err)
	return unavailable(time.Second, "the task could not be begun; connect again")
}

// assignTo hands an assignment to an orchestrator, or to a worker.
func (s *Session) assignTo(a *aetherv1.TaskAssignment) bool {
	if s.over() || s.box.Unread() > maxAssignments {
		return false
	}
	s.urgent(frame(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_TaskAssignment{TaskAssignment: a}}))
	return !s.over()
}

// taskOver ends the session of a worker whose task token is worth nothing any
// more.
func (s *Session) taskOver(reason string) {
	if s.putOut(codes.Unauthenticated, "REVOKED", auth.ErrRevoked.Error()+": "+reason) {
		s.m.stats.CredentialsRevoked.Add(1)
	}
}

// finished tells orchestration that the session has ended and its lease is free.
func (s *Session) finished(why cause) {
	switch {
	case s.started.leave != nil:
		s.started.leave(why.closed)
	case s.started.worker != nil:
		s.m.o.Orchestration.Went(*s.started.worker, why.closed)
	}
}
