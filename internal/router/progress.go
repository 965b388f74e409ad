package router

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Progress (gateway.md 14) is stored for pg::{workspace} as an encoded
// ProgressUpdate in an envelope of a kind of its own. What is addressed to one
// recipient is given to that one alone, on whatever gateway it is, also to one
// that does not listen to the workspace's progress.

// Notify publishes an update that the gateway itself makes, in the workspace
// that it names, for its recipient alone if it names one: an identity, or
// us::{user} for all windows of that user. It does not wait until the update is
// stored, of which stored tells, if it is not nil; an error says that it surely is
// not, and nothing says that it was lost on its way. Time and message id are set if
// they are empty. Nobody is taken for its reporter: the recipient gets it,
// whatever its source says.
func (r *Router) Notify(u *aetherv1.ProgressUpdate, stored func()) error {
	to, err := address.Progress(u.GetWorkspace())
	if err != nil {
		return fmt.Errorf("router: a notice: %w", err)
	}
	u = proto.CloneOf(u)
	if u.TimestampMs == 0 {
		u.TimestampMs = r.nowMS()
	}
	if u.MessageId == "" {
		u.MessageId = newID()
	}
	e, refused := r.progress(to, u)
	if refused != nil {
		return refused
	}
	p := r.parts[r.placement.Of(e.Topic)]
	p.mu.Lock()
	defer p.mu.Unlock()
	e.Seq = p.seq + 1
	p.scratch = e.Append(p.scratch[:0])
	if err := p.writer.Append(p.scratch, pending{seq: e.Seq, stored: stored}); err != nil {
		return refusal(err)
	}
	p.seq = e.Seq
	r.stats.Notices.Add(1)
	return nil
}

// progress makes the envelope of an update, all but its number.
func (r *Router) progress(to address.Address, u *aetherv1.ProgressUpdate) (*envelope.Envelope, *wireerr.Error) {
	era, name, exists := r.spaces.stamp(to, u.GetWorkspace())
	if !exists {
		return nil, wireerr.New(wireerr.NotFound, "%s", NoWorkspace(name))
	}
	payload, err := proto.Marshal(u)
	if err != nil {
		return nil, wireerr.New(wireerr.InvalidArgument, "the progress cannot be encoded").Because(err)
	}
	if n := len(payload); n > r.maxPayload {
		return nil, wireerr.New(wireerr.PayloadTooLarge, "the progress has %d bytes, %d are allowed", n, r.maxPayload).
			With("size", strconv.Itoa(n)).With("limit", strconv.Itoa(r.maxPayload))
	}
	return &envelope.Envelope{
		Payload: payload, TimestampMS: u.GetTimestampMs(), Workspace: u.GetWorkspace(), MessageID: u.GetMessageId(), Drawn: true,
		Topic: to.String(), Era: era, Origin: r.origin, Kind: envelope.Progress,
	}, nil
}

// addressees are the sessions of this gateway by identity, as far as progress
// is addressed to one of them. Its lock is a leaf but for mailboxes.
type addressees struct {
	mu sync.RWMutex
	by map[string]*addressee
}

// addressee is one session. It is replaced when the session moves, with the
// locks of the partitions of both workspaces' progress held.
type addressee struct {
	box       *delivery.Mailbox
	workspace string // where it is; empty: nowhere
	anywhere  bool   // it is in no workspace, and progress of all may reach it

	mu sync.Mutex
	// cursor is by what it gets progress of a workspace that it does not listen
	// to; nil if there was none.
	cursor *delivery.Cursor
	left   bool
}

// push gives the session an update.
func (a *addressee) push(v *envelope.View, frame []byte, r *Router) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.left {
		return
	}
	if a.cursor == nil {
		a.cursor = a.box.NewCursor(progressOf(a.workspace))
		a.cursor.Queue(r.routeOptions())
	}
	a.cursor.Push(v.Source, 0, delivery.Shared{Frame: frame})
}

func (a *addressee) leave() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.left = true
	if a.cursor != nil {
		a.cursor.Leave()
	}
}

// beAddressed makes a session known to who addresses progress to it in a
// workspace.
func (s *Subscription) beAddressed(workspace string) {
	a := &addressee{box: s.box, workspace: workspace, anywhere: s.reads.Anywhere}
	s.notices = a
	if s.reads.Identity == "" {
		return
	}
	s.r.addressees.put(s.reads.Identity, a)
}

// progressOf is the topic that gaps of what is addressed to a session name.
func progressOf(workspace string) string {
	if a, err := address.Progress(workspace); err == nil {
		return a.String()
	}
	return address.PrefixProgress.String()
}

// put makes a session known. One that it takes over from is so no more.
func (l *addressees) put(identity string, a *addressee) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = map[string]*addressee{}
	}
	l.by[identity] = a
}

func (l *addressees) drop(identity string, a *addressee) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by[identity] == a {
		delete(l.by, identity)
	}
}

// find returns who an identity is here, if it is where progress of a workspace
// may reach it.
func (l *addressees) find(identity, workspace []byte) *addressee {
	l.mu.RLock()
	defer l.mu.RUnlock()
	a := l.by[string(identity)]
	if a == nil || !a.anywhere && (a.workspace == "" || a.workspace != string(workspace)) {
		return nil
	}
	return a
}

var userPrefix = []byte("us::")

// showProgress gives an update to its recipient, whatever that one's filters are,
// or to all who listen but its reporter. Updates have no subject. The lock is
// held.
func (p *partition) showProgress(v *envelope.View) {
	if p.r.spaces.over(v.Workspace, v.Era) {
		return
	}
	recipient, err := recipientOf(v.Payload)
	if err != nil {
		p.r.stats.DamagedEnvelopes.Add(1)
		return
	}
	var t *topic
	if target := p.targets[string(v.Topic)]; target != nil {
		t = target.topic
	}
	if len(recipient) == 0 {
		if t != nil {
			t.publish(v, t.audience.classes.Match(v.Subject), t.bySource[string(v.Source)], nil, p.r, func() []byte { return progressFrame(v) })
		}
		return
	}
	if a := p.r.addressees.find(recipient, v.Workspace); a != nil {
		switch {
		case bytes.Equal(v.Source, recipient):
		case t != nil && t.bySource[string(recipient)] != nil && t.bySource[string(recipient)].box == a.box:
			// In the order of what all get.
			t.only(v, progressFrame(v), []*listener{t.bySource[string(recipient)]}, p.r)
		default:
			a.push(v, progressFrame(v), p.r)
			p.r.stats.Shared.Add(1)
		}
		return
	}
	if t == nil || !bytes.HasPrefix(recipient, userPrefix) {
		return
	}
	var windows []*listener // of a user, who does not report
	for _, l := range t.members {
		if l.isWindowOf(recipient) {
			windows = append(windows, l)
		}
	}
	if len(windows) > 0 {
		t.only(v, progressFrame(v), windows, p.r)
	}
}

// isWindowOf reports whether a listener is a window of us::{user}.
func (l *listener) isWindowOf(user []byte) bool {
	n := len(user)
	return len(l.source) > n+2 && l.source[:n] == string(user) && l.source[n:n+2] == "::"
}

const (
	fieldProgressUpdate = 16 // DownstreamMessage.progress_update
	fieldRecipient      = 11 // ProgressUpdate.recipient
)

// progressFrame is the frame of a stored update, which is encoded.
func progressFrame(v *envelope.View) []byte {
	const header = 2 + binary.MaxVarintLen64
	dst := protowire.AppendTag(make([]byte, 0, header+len(v.Payload)), fieldProgressUpdate, protowire.BytesType)
	return protowire.AppendBytes(dst, v.Payload)
}

var errUpdate = errors.New("router: no ProgressUpdate")

// recipientOf reads the recipient of an encoded update.
func recipientOf(update []byte) (recipient []byte, err error) {
	for len(update) > 0 {
		field, typ, n := protowire.ConsumeTag(update)
		if n < 0 {
			return nil, errUpdate
		}
		update = update[n:]
		if n = protowire.ConsumeFieldValue(field, typ, update); n < 0 {
			return nil, errUpdate
		}
		if field == fieldRecipient && typ == protowire.BytesType {
			recipient, _ = protowire.ConsumeBytes(update)
		}
		update = update[n:]
	}
	return recipient, nil
}
