package client

import (
	"context"
	"sync"

	"github.com/google/uuid"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// The metadata keys by which answers find their requests.
const (
	CorrelationID = "correlation-id"
	ReplyTo       = "reply-to"
)

// CodeNoReply: a Request ended before its answer came; the request itself may
// have been stored and processed.
const CodeNoReply Code = "CLIENT_NO_REPLY"

// Request sends a message and waits for the answer, which the receiver sends by
// [Message.Reply]. It may be called from a handler: answers do not wait for
// handlers. An answer is recognised by a random number that only those know who
// saw the request; look at its Source where it matters who answered. Safe for
// concurrent use.
//
// The error is that of Send if the message was refused, or has CodeNoReply if ctx
// ended first. Kinds of principals that nothing can address cannot make requests.
func (c *Client) Request(ctx context.Context, to string, payload []byte, opts ...SendOption) (*Message, error) {
	msg := &aetherv1.SendMessage{TargetTopic: to}
	address := c.Address()
	if address == "" {
		return nil, refused(CodeInvalidPrincipal, "%s has no address to which an answer could come", c.opts.Identity).at(msg)
	}
	if !c.Session().Extended {
		return nil, refused(CodeInvalidPrincipal, "this gateway does not carry the metadata by which answers are recognised").at(msg)
	}
	id := uuid.NewString()
	answer := c.requests.open(id)
	defer c.requests.close(id)
	opts = append(opts[:len(opts):len(opts)], WithMetadata(map[string]string{CorrelationID: id, ReplyTo: address}))
	p, err := c.SendAsync(ctx, to, payload, opts...)
	if err != nil {
		return nil, err
	}
	stored := p.done
	for {
		select {
		case m := <-answer:
			return m, nil
		case <-stored:
			if p.err != nil {
				return nil, p.err
			}
			stored = nil
		case <-ctx.Done():
			e := &Error{Code: CodeNoReply, Message: "no answer: " + ctx.Err().Error(), Retryable: true, cause: ctx.Err()}
			e.To, e.MessageID = to, p.MessageID
			return nil, e
		case <-c.done:
			return nil, c.endError().at(&aetherv1.SendMessage{TargetTopic: to, MessageId: p.MessageID})
		}
	}
}

// Reply answers a message: to the address in its metadata under [ReplyTo], or
// else to its sender, with its correlation id and type. It waits for the receipt
// as [Client.Send] does. ReplyTo is chosen by the sender; where an answer must
// go to nobody but the verified sender, Send to m.Source instead.
func (m *Message) Reply(ctx context.Context, payload []byte, opts ...SendOption) (Receipt, error) {
	to, id := m.Metadata[ReplyTo], m.Metadata[CorrelationID]
	if to == "" {
		to = m.Source
	}
	if id == "" {
		id = m.ID
	}
	own := []SendOption{WithType(m.Type)}
	if id != "" {
		own = append(own, WithMetadata(map[string]string{CorrelationID: id}))
	}
	if m.client == nil {
		return Receipt{}, refused(CodeInvalidArgument, "this message did not come through a client")
	}
	return m.client.Send(ctx, to, payload, append(own, opts...)...)
}

// maxLate bounds how many ended requests are remembered, so that a late answer
// is not taken for a message of its own; the oldest are forgotten.
const maxLate = 1024

// requests are those that wait for an answer. Safe for concurrent use. Its lock
// is taken inside the receiver's.
type requests struct {
	notices *notices
	self    func() string // this principal's address

	mu      sync.Mutex
	waiting map[string]chan *Message // capacity 1: the first answer counts
	ended   map[string]struct{}
	order   []string
	oldest  int
}

func newRequests(n *notices, self func() string) *requests {
	return &requests{notices: n, self: self, waiting: make(map[string]chan *Message), ended: make(map[string]struct{})}
}

func (r *requests) open(id string) <-chan *Message {
	r.mu.Lock()
	defer r.mu.Unlock()
	ch := make(chan *Message, 1)
	r.waiting[id] = ch
	return ch
}

func (r *requests) close(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, id)
	r.ended[id] = struct{}{}
	if len(r.order) < maxLate {
		r.order = append(r.order, id)
		return
	}
	delete(r.ended, r.order[r.oldest])
	r.order[r.oldest] = id
	r.oldest = (r.oldest + 1) % maxLate
}

// claim takes a message that answers a request, waiting or ended.
func (r *requests) claim(m *Message) bool {
	id := m.Metadata[CorrelationID]
	if id == "" || m.Metadata[ReplyTo] != "" && m.Source == r.self() { // or it is a request to oneself
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if ch, ok := r.waiting[id]; ok {
		select {
		case ch <- m:
		default: // a second answer
			r.notices.put(LateReply{Message: m})
		}
		return true
	}
	if _, late := r.ended[id]; late {
		r.notices.put(LateReply{Message: m})
		return true
	}
	return false
}
