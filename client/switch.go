package client

import (
	"context"
	"sync"
	"unicode/utf8"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Workspace is the workspace that this principal is in: that of its identity, or
// where a user has asked to be. It is "" for a user who has named none, who is
// in the only one of the credential or in none, and for those that belong to
// none.
func (c *Client) Workspace() string {
	if ws := c.opts.Identity.workspace; ws != "" {
		return ws
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.workspace
}

// SwitchWorkspace takes a user's window into another workspace. When it returns
// nil, nothing of the old workspace is handed out any more (what a handler has
// begun goes on; messages to the window itself stay), what is sent from now on
// goes with the new one, and later sessions of this client begin there. On an
// error the window is where it was: the gateway's refusal, or CodeGaveUp or
// CodeConnection if the answer did not come; then it may have been in the new
// workspace for a moment, and is connected anew where it was.
//
// Sends under way are not waited for: they go with either workspace. A gateway
// without the extension answers refusals only, as notices; from such a one nil
// says that it was asked. It may be called by many goroutines; one after the
// other is served.
func (c *Client) SwitchWorkspace(ctx context.Context, workspace string) error {
	if c.opts.Identity.kind != kindUser {
		return refused(CodeInvalidPrincipal, "%s cannot change its workspace; only users do", c.opts.Identity)
	}
	if workspace == "" || len(workspace) > maxAddress || !utf8.ValidString(workspace) {
		return refused(CodeInvalidArgument, "the workspace's name is empty, too long or not valid UTF-8")
	}
	l, err := c.connected()
	if err != nil {
		return err
	}
	return l.switchTo(ctx, workspace)
}

// switches are a link's changes of workspace: one at a time.
type switches struct {
	turn chan struct{} // capacity 1

	mu     sync.Mutex
	to     string // what is asked for; "": nothing is
	answer chan error
}

func newSwitches() *switches { return &switches{turn: make(chan struct{}, 1)} }

// ask says that an answer is waited for.
func (s *switches) ask(to string) <-chan error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.to, s.answer = to, make(chan error, 1)
	return s.answer
}

// switched hands on what the gateway said to the change that was asked for, if
// it is one.
func (s *switches) switched(err error) (asked bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.to == "" {
		return false
	}
	s.to = ""
	s.answer <- err
	return true
}

// refused takes the refusal of a change, which has no request id.
func (s *switches) refused(e *Error) bool {
	return e.Details["frame"] == "switch_workspace" && s.switched(e)
}

func (l *link) switchTo(ctx context.Context, workspace string) error {
	s := l.switches
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-l.ctx.Done():
		return l.failure(l.ctx.Err())
	case <-ctx.Done():
		return gaveUp("the workspace was not changed", ctx.Err())
	}
	answer := s.ask(workspace)
	err := l.sendFrame(ctx, &aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_SwitchWorkspace{
		SwitchWorkspace: &aetherv1.SwitchWorkspace{NewWorkspaceId: workspace},
	}})
	if err != nil {
		s.switched(err) // nobody waits for the answer
		return err
	}
	if !l.session.Extended {
		s.switched(nil)
		l.c.moved(workspace)
		return nil
	}
	select {
	case err := <-answer:
		return err
	case <-l.ctx.Done():
		return l.failure(l.ctx.Err())
	case <-ctx.Done():
	}
	if !s.switched(nil) {
		return <-answer
	}
	// The gateway may make the change yet: a session of its own is where it was.
	e := gaveUp("the workspace was not changed", ctx.Err())
	l.cancel(broken("connecting anew: a change of workspace has no answer"))
	return e
}

// startIn is where a user's next session begins.
func (c *Client) startIn() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.workspace
}

// moved notes that the client is in another workspace, before anything of it is
// handed out.
func (c *Client) moved(workspace string) {
	c.mu.Lock()
	c.workspace = workspace
	c.mu.Unlock()
	c.recv.forgetShared()
}

// forgetShared drops what waits of shared addresses.
func (r *receiver) forgetShared() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for m := r.queue.head; m != nil; {
		next := m.next
		if !m.tracked {
			r.queue.remove(m)
			r.shared--
		}
		m = next
	}
	r.lost = 0
	r.room.Broadcast()
}
