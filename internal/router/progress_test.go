package router

import (
	"context"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// reader joins as a principal that reads what is shared in w.
func (w *world) reader(kind acl.Kind, name string, set acl.WorkspaceSet, shared ...string) *session {
	w.t.Helper()
	a, err := address.Parse(name)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &acl.Principal{Kind: kind, Address: a, Workspaces: set}
	if kind.WorkspaceScoped() {
		p.Workspace = "w"
	}
	return w.join(p, name, delivery.Options{}, Reads{Exclusive: []string{name}, Shared: shared, Anywhere: !kind.WorkspaceScoped()})
}

// progress returns the updates that are there when the log has been read.
func (s *session) progress() (summaries string) {
	s.w.t.Helper()
	s.w.settled()
	for s.pump() {
	}
	var list []string
	for _, m := range s.queue {
		if u := m.GetProgressUpdate(); u != nil {
			list = append(list, u.GetSummary())
		}
	}
	s.queue = nil
	return strings.Join(list, " ")
}

func (s *session) report(r *aetherv1.ProgressReport) {
	s.w.t.Helper()
	if err := CheckReport(r); err != nil {
		s.w.t.Fatal(err)
	}
	if err := s.sender.Report(r, ""); err != nil {
		s.w.t.Fatal(err)
	}
}

// gateway.md 14: a report reaches who listens, but its reporter; with a
// recipient only that one, or all windows of a user.
func Test14Progress(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.member("u", "w")
	a := w.reader(acl.Agent, "ag::w::i::a", acl.WorkspaceSet{}, "pg::w")
	b := w.reader(acl.Agent, "ag::w::i::b", acl.WorkspaceSet{}, "pg::w")
	one := w.reader(acl.User, "us::u::1", acl.WorkspaceSet{}, "pg::w")
	two := w.reader(acl.User, "us::u::2", acl.WorkspaceSet{}, "pg::w")
	other := w.reader(acl.User, "us::uu::1", acl.WorkspaceSet{}, "pg::w")
	task := w.reader(acl.UniqueTask, "tu::w::i::t", acl.WorkspaceSet{})
	service := w.reader(acl.Service, "sv::i::s", acl.Workspaces("w"))
	all := []*session{a, b, one, two, other, task, service}
	for _, c := range []struct {
		name   string
		from   *session
		report *aetherv1.ProgressReport
		reach  []*session
	}{
		{"to all", a, &aetherv1.ProgressReport{}, []*session{b, one, two, other}},
		{"to an agent", a, &aetherv1.ProgressReport{Recipient: "ag::w::i::b"}, []*session{b}},
		{"to the reporter itself", a, &aetherv1.ProgressReport{Recipient: "ag::w::i::a"}, nil},
		{"to a window", a, &aetherv1.ProgressReport{Recipient: "us::u::2"}, []*session{two}},
		{"to a user", b, &aetherv1.ProgressReport{Recipient: "us::u"}, []*session{one, two}},
		{"to a task, which listens to none", a, &aetherv1.ProgressReport{Recipient: "tu::w::i::t"}, []*session{task}},
		{"to who is away", a, &aetherv1.ProgressReport{Recipient: "ag::w::i::away"}, nil},
		{"of a task", task, &aetherv1.ProgressReport{}, []*session{a, b, one, two, other}},
		{"of a service", service, &aetherv1.ProgressReport{Recipient: "ag::w::i::a"}, []*session{a}},
		{"of a service with one workspace", service, &aetherv1.ProgressReport{}, []*session{a, b, one, two, other}},
	} {
		c.report.Summary = "x"
		c.from.report(c.report)
		for _, s := range all {
			want := ""
			for _, r := range c.reach {
				if r == s {
					want = "x"
				}
			}
			if got := s.progress(); got != want {
				t.Errorf("%s: %s got %q, want %q", c.name, s.name, got, want)
			}
		}
	}
}

// What a recipient gets is stamped by the gateway.
func Test14Stamp(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.reader(acl.Agent, "ag::w::i::a", acl.WorkspaceSet{})
	b := w.reader(acl.Agent, "ag::w::i::b", acl.WorkspaceSet{}, "pg::w")
	r := &aetherv1.ProgressReport{
		TaskId: "t", State: "s", Completion: 0.5, Summary: "sum", Step: &aetherv1.ProgressStep{Name: "n", Detail: "d", Sequence: 1, TotalSteps: 2, StepType: "y"},
		RequestId: "r", Metadata: map[string]string{"k": "v"}, Kind: aetherv1.ProgressKind_PROGRESS_KIND_APP,
	}
	a.report(r)
	u := b.next(func(m *aetherv1.DownstreamMessage) bool { return m.GetProgressUpdate() != nil }).GetProgressUpdate()
	if u.GetMessageId() == "" || u.GetTimestampMs() == 0 {
		t.Errorf("got %v", u)
	}
	want := &aetherv1.ProgressUpdate{
		Source: a.name, TaskId: "t", State: "s", Completion: 0.5, Summary: "sum", Step: r.GetStep(), TimestampMs: u.GetTimestampMs(),
		Workspace: "w", RequestId: "r", Metadata: r.GetMetadata(), Kind: r.GetKind(), MessageId: u.GetMessageId(),
	}
	if !proto.Equal(u, want) {
		t.Errorf("got %v, want %v", u, want)
	}
	a.box.Reply(nil) // nothing came before it: no receipt, although there is a request id
	if got := a.next(func(*aetherv1.DownstreamMessage) bool { return true }); got.GetPayload() != nil {
		t.Errorf("the reporter was told %v", got)
	}
}

// The gateway's own updates reach their recipient whatever their source says,
// and principals without a workspace as well, but nobody of another workspace.
func Test136Notices(t *testing.T) {
	t.Parallel()
	w := setup(t)
	a := w.reader(acl.Agent, "ag::w::i::a", acl.WorkspaceSet{}, "pg::w")
	service := w.reader(acl.Service, "sv::i::s", acl.Workspaces("w"))
	tell := func(workspace, to string) {
		t.Helper()
		u := &aetherv1.ProgressUpdate{Workspace: workspace, Recipient: to, Source: "ag::w::i::a", Summary: "n"}
		stored := make(chan struct{})
		if err := w.r.Notify(u, func() { close(stored) }); err != nil {
			t.Fatal(err)
		}
		<-stored
		if u.GetMessageId() != "" {
			t.Error("the caller's update was changed")
		}
	}
	tell("w", "ag::w::i::a")
	tell("w", "sv::i::s")
	tell("v", "ag::w::i::a")
	if got := a.progress(); got != "n" {
		t.Errorf("the agent got %q", got)
	}
	if got := service.progress(); got != "n" {
		t.Errorf("the service got %q", got)
	}
	if err := w.r.Notify(&aetherv1.ProgressUpdate{}, nil); err == nil {
		t.Error("a notice without a workspace was published")
	}
}

func Test14Refused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.member("u", "w")
	a := w.reader(acl.Agent, "ag::w::i::a", acl.WorkspaceSet{}, "pg::w")
	user := w.reader(acl.User, "us::u::1", acl.WorkspaceSet{}, "pg::w")
	service := w.reader(acl.Service, "sv::i::s", acl.Workspaces("w", "v"))
	bridge := w.reader(acl.Bridge, "br::i::s", acl.All())
	for _, c := range []struct {
		name   string
		from   *session
		report *aetherv1.ProgressReport
		in     string
		want   wireerr.Code
	}{
		{"of a user", user, &aetherv1.ProgressReport{}, "", wireerr.PermissionDenied},
		{"of a bridge", bridge, &aetherv1.ProgressReport{}, "w", wireerr.PermissionDenied},
		{"no address", a, &aetherv1.ProgressReport{Recipient: "x"}, "", wireerr.InvalidArgument},
		{"all agents", a, &aetherv1.ProgressReport{Recipient: "ga::w"}, "", wireerr.InvalidArgument},
		{"a service", a, &aetherv1.ProgressReport{Recipient: "sv::i::s"}, "", wireerr.InvalidArgument},
		{"no user", a, &aetherv1.ProgressReport{Recipient: "us::"}, "", wireerr.InvalidArgument},
		{"another workspace", a, &aetherv1.ProgressReport{Recipient: "ag::v::i::a"}, "", wireerr.PermissionDenied},
		{"no member", a, &aetherv1.ProgressReport{Recipient: "us::v"}, "", wireerr.PermissionDenied},
		{"no member's window", a, &aetherv1.ProgressReport{Recipient: "us::v::1"}, "", wireerr.PermissionDenied},
		{"a task of another workspace", a, &aetherv1.ProgressReport{}, "v", wireerr.PermissionDenied},
		{"a service without a workspace", service, &aetherv1.ProgressReport{}, "", wireerr.InvalidArgument},
		{"a service elsewhere", service, &aetherv1.ProgressReport{}, "x", wireerr.PermissionDenied},
		{"too large", a, &aetherv1.ProgressReport{Summary: strings.Repeat("x", 1_000_000)}, "", wireerr.PayloadTooLarge},
	} {
		if err := c.from.sender.Report(c.report, c.in); err == nil || err.Code != c.want {
			t.Errorf("%s: %v, want %s", c.name, err, c.want)
		}
	}
	if got := a.progress() + user.progress(); got != "" {
		t.Errorf("something was published: %q", got)
	}
}

func TestCheckReport(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 1000)
	for name, r := range map[string]*aetherv1.ProgressReport{
		"below 0":     {Completion: -0.01},
		"above 1":     {Completion: 1.01},
		"no number":   {Completion: math.NaN()},
		"infinite":    {Completion: math.Inf(1)},
		"kind":        {Kind: 17},
		"sequence":    {Step: &aetherv1.ProgressStep{Sequence: -1}},
		"total steps": {Step: &aetherv1.ProgressStep{TotalSteps: -1}},
		"task":        {TaskId: long},
		"request":     {RequestId: long},
		"state":       {State: long},
		"reserved":    {Metadata: map[string]string{"aether-x": ""}},
	} {
		if err := CheckReport(r); err == nil || err.Code != wireerr.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range []float64{0, 1, 0.5} {
		if err := CheckReport(&aetherv1.ProgressReport{Completion: c}); err != nil {
			t.Error(err)
		}
	}
}

func FuzzRecipientOf(f *testing.F) {
	for _, u := range []*aetherv1.ProgressUpdate{{}, {Recipient: "us::u", Summary: "s"}, {Metadata: map[string]string{"k": "v"}, Recipient: "x"}} {
		b, _ := proto.Marshal(u)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := recipientOf(b)
		var u aetherv1.ProgressUpdate
		if proto.Unmarshal(b, &u) != nil {
			return
		}
		if err != nil || string(got) != u.GetRecipient() {
			t.Errorf("got %q, %v, want %q", got, err, u.GetRecipient())
		}
	})
}

// member puts a user into a workspace.
func (w *world) member(user, workspace string) {
	w.t.Helper()
	if err := w.r.Members().Learn(context.Background(), user, []string{workspace}, time.Now().Add(time.Hour)); err != nil {
		w.t.Fatal(err)
	}
}
