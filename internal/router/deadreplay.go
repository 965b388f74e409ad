package router

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/envelope"
	"github.com/aether-gateway/gateway/internal/policy"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// ReplayDeadLetter sends a dead letter to its address again, from who sent it,
// and counts it as gone when it is stored; it returns the id of what was sent.
// That is a new message, with a time of its own, without the old one's time to
// live, and flagged as delivered before. Its id is made of the letter's place, so
// that two who replay one letter at a time send it once (delivery rule P6).
// [ErrReplayed] and [ErrNoDeadLetter] refuse it; a [wireerr.Error] says that it
// may not be sent any more, or could not be stored. Any other error may mean that
// it is sent and still there.
func (r *Router) ReplayDeadLetter(ctx context.Context, position uint64) (messageID string, err error) {
	done, err := r.dead.begin(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	end, err := r.dead.refresh(ctx)
	if err != nil {
		return "", err
	}
	if s, gone := r.dead.gone.at(position); gone && s.replayed {
		return "", ErrReplayed
	} else if gone {
		return "", ErrNoDeadLetter
	}
	var found *aetherv1.MessageEnvelope
	err = r.readDead(ctx, position, end, func(at uint64, e *aetherv1.MessageEnvelope) bool {
		if at == position && e.GetKind() == aetherv1.MessageEnvelope_KIND_DEAD_LETTER {
			found = e
		}
		return false
	})
	switch {
	case err != nil:
		return "", err
	case found == nil:
		return "", ErrNoDeadLetter
	}
	d := deadLetterOf(position, found)
	if refused := r.mayReplay(d.Message); refused != nil {
		return "", refused
	}
	id := fmt.Sprintf("replay-%d-%s", position, strconv.FormatInt(d.At.UnixMilli(), 36))
	again, err := r.resend(ctx, d.Message, id)
	if err != nil {
		return "", err
	}
	if err := r.purgeDead(ctx, span{first: position, last: position, replayed: true}); err != nil {
		return "", err
	}
	if again {
		return "", ErrReplayed // by another gateway, at the same time
	}
	return id, nil
}

// mayReplay refuses a message that its sender may not send any more. What the
// sender was let do by a grant it may do again.
func (r *Router) mayReplay(m *aetherv1.MessageEnvelope) *wireerr.Error {
	to, err := address.Parse(m.GetTopic())
	if err != nil {
		return wireerr.New(wireerr.InvalidTopic, "%v", err)
	}
	era, name, exists := r.spaces.stamp(to, m.GetWorkspace())
	if !exists || name != "" && era != m.GetWorkspaceEra() {
		return wireerr.New(wireerr.NotFound, "workspace %q was deleted since; the message can only be purged", name)
	}
	// Of a sender that is in no workspace it is not kept which it may reach; that
	// was found when it sent.
	within := "*"
	if m.GetWorkspace() != "" {
		within = m.GetWorkspace()
	}
	p, err := policy.PrincipalOf(m.GetSource(), within)
	if err != nil {
		return wireerr.New(wireerr.InvalidPrincipal, "its sender: %v", err)
	}
	if p.Kind == acl.User && p.Workspace != "" && r.members.Barred(p.Address.UserID(), p.Workspace) {
		return wireerr.New(wireerr.PermissionDenied, "its sender is no member of workspace %q any more: an operator keeps them out", p.Workspace)
	}
	if d := r.Decide(p, to); !d.Allowed {
		return wireerr.New(wireerr.PermissionDenied, "its sender may not send it any more: %s", d.Message(p, to))
	}
	return r.checkQuota(m.GetWorkspace())
}

// resend publishes a message again, in the name of who sent it, and waits until
// it is stored. again says that it was, by the same id, before.
func (r *Router) resend(ctx context.Context, m *aetherv1.MessageEnvelope, id string) (again bool, err error) {
	e := envelope.Envelope{
		Source: m.GetSource(), Payload: m.GetPayload(), Type: int32(m.GetMessageType()), Metadata: m.GetMetadata(), MessageID: id,
		Workspace: m.GetWorkspace(), Subject: m.GetSubject(), Topic: m.GetTopic(), Origin: r.origin, TimestampMS: r.nowMS(),
		Era: m.GetWorkspaceEra(),
	}
	if m.GetOnBehalfSubject() != nil {
		if e.OnBehalf, err = proto.Marshal(m.GetOnBehalfSubject()); err != nil {
			return false, err
		}
	}
	if e.Metadata == nil {
		e.Metadata = map[string]string{}
	}
	if e.Metadata[replayOf] == "" { // of a second replay it is the first one's
		e.Metadata[replayOf] = m.GetMessageId()
	}
	box := delivery.NewMailbox(delivery.Options{})
	defer box.Close()
	s := r.NewSender(&acl.Principal{}, e.Source, presence.Lease{}, box, func() {})
	if refused := s.publish("replay", &e, nil, nil); refused != nil {
		return false, refused
	}
	var batch delivery.Batch
	for !box.Take(&batch) {
		select {
		case <-box.Wake():
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	var answer aetherv1.DownstreamMessage
	if err := proto.Unmarshal(batch.Frames[0], &answer); err != nil {
		return false, err
	}
	if x := answer.GetError(); x != nil {
		return false, wireerr.New(wireerr.Code(x.GetCode()), "%s", x.GetMessage())
	}
	return answer.GetReceipt().GetDuplicate(), nil
}
