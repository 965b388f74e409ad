package router

import (
	"slices"
	"sync"
	"testing"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// asked notes who is to be started.
type asked struct {
	mu  sync.Mutex
	who []string
}

func (*asked) Armed() bool { return true }

func (a *asked) Waits(to, sender, workspace string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.who = append(a.who, to+" "+sender+" "+workspace)
}

func (a *asked) list() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Compact(slices.Clone(a.who))
}

// TestRow20OnlyStoredMailStarts: who is not there is to be started when a message
// for them has been stored, not before, and not if it was refused; who is there
// is not, and an address that is nobody's mailbox neither.
func TestRow20OnlyStoredMailStarts(t *testing.T) {
	t.Parallel()
	w := setup(t)
	var starter asked
	w.r.SetStarter(&starter)
	a, b := w.agent("a", client(0)), w.agent("b", client(0))
	w.warm(a, b)
	w.log.Stall(true)
	if err := a.sender.Send(&aetherv1.SendMessage{TargetTopic: "ag::w::i::c", Payload: []byte("x"), RequestId: "r"}); err != nil {
		t.Fatal(err)
	}
	if err := a.sender.Send(&aetherv1.SendMessage{TargetTopic: "ag::other::i::c", Payload: []byte("x")}); err == nil {
		t.Error("another workspace")
	}
	if got := starter.list(); len(got) > 0 {
		t.Errorf("before it was stored: %q", got)
	}
	w.log.Stall(false)
	if r := a.answer().GetReceipt(); r == nil {
		t.Fatal("no receipt")
	}
	for _, to := range []string{"ag::w::i::b", "ga::w"} {
		a.send(to, "x", "r")
		a.answer()
	}
	w.settled()
	if got, want := starter.list(), []string{"ag::w::i::c ag::w::i::a w"}; !slices.Equal(got, want) {
		t.Errorf("to be started: %q, want %q", got, want)
	}
}
