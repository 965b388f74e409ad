package session

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Workers knows who works on which task. It is safe for concurrent use.
type Workers interface {
	// Owned returns the workspace of a task that an identity works on now; ok is
	// false if there is no such task, if it is over, or somebody else's. It may
	// ask the store.
	Owned(ctx context.Context, task, identity string) (workspace string, ok bool, err error)
	// Beat notes that the worker of a task is alive. It does not wait; what it
	// notes is written at most once a second and task.
	Beat(task, identity string)
}

// reports is what a session remembers for the sake of its reports of progress.
type reports struct {
	// queued are those that wait for the store: those that come after them wait
	// behind them.
	queued atomic.Int32
	// The task that was reported on last was found to be the session's at that
	// time. Guarded by handling.
	task, workspace string
	at              time.Time
}

// ownedFor is how long it is not asked again whose a task is.
const ownedFor = time.Second

// progress takes a report of progress (gateway.md 14).
func (s *Session) progress(p *aetherv1.ProgressReport) {
	if err := router.CheckReport(p); err != nil {
		s.refuseReport(p, err)
		return
	}
	r := &s.reports
	known := p.GetTaskId() == "" || p.GetTaskId() == r.task && s.m.o.Now().Sub(r.at) < ownedFor
	switch {
	case !s.kind.Reports(), known && r.queued.Load() == 0:
		s.report(p)
		return
	case p.GetTaskId() != "" && s.m.o.Workers == nil:
		s.refuseReport(p, noTask())
		return
	}
	r.queued.Add(1)
	err := s.later(proto.Size(p), func(ctx context.Context) {
		defer r.queued.Add(-1)
		s.reportLater(ctx, p)
	})
	if err != nil {
		r.queued.Add(-1)
		s.refuseReport(p, err)
	}
}

// reportLater asks whose the task is, and reports.
func (s *Session) reportLater(ctx context.Context, p *aetherv1.ProgressReport) {
	workspace, owned := "", true
	if p.GetTaskId() != "" {
		var err error
		workspace, owned, err = s.m.o.Workers.Owned(ctx, p.GetTaskId(), s.identity)
		if err != nil {
			s.m.o.Logger.Warn("whose a task is could not be asked; its progress is refused", "error", err)
			s.refuseReport(p, wireerr.New(wireerr.Unavailable, "whose the task is cannot be asked at present; the progress is not published"))
			return
		}
	}
	if !owned {
		s.refuseReport(p, noTask())
		return
	}
	s.handling.Lock()
	defer s.handling.Unlock()
	if s.over() || s.expired(s.m.o.Now()) {
		return
	}
	if p.GetTaskId() != "" {
		s.reports.task, s.reports.workspace, s.reports.at = p.GetTaskId(), workspace, s.m.o.Now()
	}
	s.report(p)
}

// report publishes a report on a task that is the session's, or on none. The
// lock handling is held.
func (s *Session) report(p *aetherv1.ProgressReport) {
	workspace := ""
	if p.GetTaskId() != "" {
		workspace = s.reports.workspace
	}
	if err := s.sender.Report(p, workspace); err != nil {
		s.refuseReport(p, err)
		return
	}
	if p.GetTaskId() != "" {
		s.m.o.Workers.Beat(p.GetTaskId(), s.identity)
		if s.m.o.Tasks != nil {
			s.m.o.Tasks.Reported(p, workspace)
		}
	}
}

// noTask is the refusal of a task that is not there, or somebody else's.
func noTask() *wireerr.Error {
	return wireerr.New(wireerr.NotFound, "no such task is worked on by this session")
}

func (s *Session) refuseReport(p *aetherv1.ProgressReport, err *wireerr.Error) {
	s.record("progress", p.GetTaskId(), err)
	id := p.GetRequestId()
	if len(id) > maxRequestText {
		id = "" // it cannot be told back
	}
	s.urgent(router.ErrorFrame(id, err))
}
