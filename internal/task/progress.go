package task

import (
	"encoding/json"
	"sync"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/presence"
)

// kindReported is the notice of a report, for other gateways. It may be lost.
const kindReported = "task.reported"

// report is what those who follow a task are told of its progress.
type report struct {
	ID        string `json:"id"`
	Workspace string `json:"ws"`
	AtMS      int64  `json:"at"`
	Event     []byte `json:"event"` // a TaskProgressEvent
}

// reports are the newest of each task, told once a second.
type reports struct {
	mu sync.Mutex
	by map[string]report // at most maxReports; what is beyond is dropped, as the next one follows
}

const (
	maxReports = 4096
	// maxReport is how large an event may be, in bytes. Of one that is larger the
	// metadata is left out; if that does not help, nobody is told.
	maxReport = 8 << 10
)

// Reported has those who follow a task told of a report of its worker: of the
// newest one, once a second. What is for one recipient is told to nobody else.
// It does not wait.
func (s *Service) Reported(p *aetherv1.ProgressReport, workspace string) {
	if p.GetTaskId() == "" || p.GetRecipient() != "" {
		return
	}
	e := &aetherv1.TaskProgressEvent{State: p.GetState(), Progress: p.GetCompletion(), Message: p.GetSummary(), Metadata: p.GetMetadata()}
	if proto.Size(e) > maxReport {
		e.Metadata = nil
	}
	b, err := proto.Marshal(e)
	if err != nil || len(b) > maxReport {
		return
	}
	r := &s.reports
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.by == nil {
		r.by = map[string]report{}
	}
	if _, known := r.by[p.GetTaskId()]; known || len(r.by) < maxReports {
		r.by[p.GetTaskId()] = report{p.GetTaskId(), workspace, s.o.Now().UnixMilli(), b}
	}
}

// tellReported tells of what was reported since it was last called.
func (s *Service) tellReported() {
	s.reports.mu.Lock()
	by := s.reports.by
	s.reports.by = nil
	s.reports.mu.Unlock()
	if len(by) == 0 {
		return
	}
	list, certain := s.o.Presence.Instances()
	alone := certain && len(list) < 2
	for _, r := range by {
		s.subs.reported(&r)
		if !alone {
			_ = s.o.Presence.Send("", kindReported, encode(r)) // the next one makes up for it
		}
	}
}

// heardReport takes the notice of another gateway.
func (s *Service) heardReport(n presence.Notice) {
	var r report
	if json.Unmarshal(n.Payload, &r) == nil && r.ID != "" {
		s.subs.reported(&r)
	}
}

// reported gives a report to those who follow the task; none comes after the end
// of a task.
func (l *subscriptions) reported(r *report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	followers := l.of[r.ID]
	if len(followers) == 0 {
		return
	}
	p := &aetherv1.TaskProgressEvent{}
	if proto.Unmarshal(r.Event, p) != nil {
		return
	}
	for x := range followers {
		if x.state[r.ID].Over() {
			continue
		}
		e := x.event(&change{ID: r.ID, Workspace: r.Workspace, AtMS: r.AtMS})
		e.Event = &aetherv1.TaskEvent_Progress{Progress: p}
		x.give(e)
	}
}
