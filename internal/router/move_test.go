package router

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/streams"
)

// gateway.md 16: what waits of the old workspace is dropped with what is told
// of it, nothing of it comes after the move, and everything of the new one does;
// the window itself is not touched.
func Test16Move(t *testing.T) {
	t.Parallel()
	w := setup(t, func(o *Options) { o.Placement = streams.Placement{Partitions: 1} })
	w.member("u", "w")
	user := w.reader(acl.User, "us::u::1", acl.WorkspaceSet{}, "gu::w", "uw::u::w", "pg::w")
	old := w.reader(acl.Agent, "ag::w::i::a", acl.WorkspaceSet{})
	fresh := w.join(&acl.Principal{Kind: acl.Bridge}, "br::i::1", delivery.Options{}, Reads{Anywhere: true})
	everywhere := func(text string) {
		t.Helper()
		for _, ws := range []string{"w", "v"} {
			for _, to := range []string{"gu::" + ws, "uw::u::" + ws, "pg::" + ws} {
				fresh.send(to, text+" "+to, "")
			}
			for _, to := range []string{"", "us::u::1", "us::u"} {
				u := &aetherv1.ProgressUpdate{Workspace: ws, Recipient: to, Summary: text + " " + ws + " to " + to}
				if err := w.r.Notify(u, nil); err != nil {
					t.Fatal(err)
				}
			}
		}
		old.send("us::u::1", text+" window", "")
		w.settled()
	}
	got := func() (list []string) {
		for user.pump() {
		}
		for _, m := range user.queue {
			switch {
			case m.GetMsg() != nil:
				list = append(list, string(m.GetMsg().GetPayload()))
			case m.GetProgressUpdate() != nil:
				list = append(list, m.GetProgressUpdate().GetSummary())
			default:
				list = append(list, "switched")
			}
		}
		user.queue = nil
		return list
	}
	everywhere("1")
	frame, err := proto.Marshal(&aetherv1.DownstreamMessage{Payload: &aetherv1.DownstreamMessage_WorkspaceSwitched{
		WorkspaceSwitched: &aetherv1.WorkspaceSwitched{Workspace: "v"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if !user.sub.Move("v", []string{"gu::v", "uw::u::v", "pg::v"}, frame) {
		t.Fatal("the frame was not queued")
	}
	everywhere("2")
	want := []string{
		"switched", "2 gu::v", "2 uw::u::v", "2 pg::v", "2 v to ", "2 v to us::u::1", "2 v to us::u", "1 window", "2 window",
	}
	if list := got(); fmt.Sprint(list) != fmt.Sprint(want) {
		t.Errorf("got  %q\nwant %q", list, want)
	}
	// Back, without a frame, and out at the end: nothing is left behind.
	user.sub.Move("w", []string{"gu::w", "uw::u::w", "pg::w"}, nil)
	everywhere("3")
	if list := got(); len(list) != 7 || !slices.Contains(list, "3 gu::w") {
		t.Errorf("got %q", list)
	}
	user.leave()
	p := w.r.parts[0]
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, target := range p.targets {
		if target.topic != nil {
			t.Errorf("%s is still heard", name)
		}
	}
	if w.r.addressees.find([]byte("us::u::1"), []byte("w")) != nil {
		t.Error("progress is still addressed to who has left")
	}
}
