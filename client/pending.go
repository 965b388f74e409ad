package client

import (
	"container/list"
	"context"
	"sync"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

const (
	// repeatFor is how long after its first writing a send is repeated; the
	// gateway remembers ids for ten minutes (delivery rule P6).
	repeatFor = 9 * time.Minute
	// maxWrites bounds how often one send is written: if the connection broke each
	// time, the send may well be the reason.
	maxWrites = 8
)

// Pending is a send that is under way. Safe for concurrent use.
type Pending struct {
	// MessageID is the message's id.
	MessageID string

	done    chan struct{}
	receipt Receipt // these two are set before done is closed
	err     error
}

// Done is closed when the outcome is known.
func (p *Pending) Done() <-chan struct{} { return p.done }

// Wait returns the outcome, as [Client.Send] does. The ctx bounds only the
// waiting: when it ends the error has CodeGaveUp, and the send is still under way.
func (p *Pending) Wait(ctx context.Context) (Receipt, error) {
	select {
	case <-p.done:
	case <-ctx.Done():
		select {
		case <-p.done:
		default:
			return Receipt{}, gaveUp("the send is still under way", ctx.Err())
		}
	}
	return p.receipt, p.err
}

// outgoing is a send from the call until its outcome. The frame is read only.
type outgoing struct {
	frame   *aetherv1.UpstreamMessage
	msg     *aetherv1.SendMessage
	size    int
	post    bool
	pending *Pending
	release func() bool // stops watching the context

	// Guarded by sendQueue.mu.
	prev, next *outgoing
	queued     bool
	writes     int
	firstWrite time.Time
}

// sendQueue holds the sends without an outcome, in the order of the calls. The
// writer takes them one by one; what is written stays until it is answered, and
// a new session begins again at the oldest. Safe for concurrent use.
//
// Bounded by messages and bytes: callers wait their turn, first come first
// served, until there is room.
type sendQueue struct {
	maxCount, maxBytes int
	notices            *notices

	mu         sync.Mutex
	head, tail *outgoing
	unwritten  *outgoing // the first not yet written in this session
	requests   map[string]*outgoing
	count      int
	bytes      int
	waiting    list.List // of *turn
	link       *link     // nil between sessions
	idempotent bool      // the last session's gateway knows message ids
	closed     *Error    // nothing is taken any more
	emptied    chan struct{}
}

type turn struct {
	o     *outgoing
	ready chan struct{}
	err   *Error
}

func newSendQueue(c *Client) *sendQueue {
	return &sendQueue{
		maxCount: c.opts.MaxPending, maxBytes: c.opts.PendingBytes, notices: c.notices,
		requests: make(map[string]*outgoing),
	}
}

// add takes a send, waiting for room.
func (q *sendQueue) add(ctx context.Context, o *outgoing) error {
	if err := ctx.Err(); err != nil {
		return notSent(o, err)
	}
	q.mu.Lock()
	if q.closed != nil {
		defer q.mu.Unlock()
		return q.closed.of(o)
	}
	if q.waiting.Len() == 0 && q.fits(o) {
		q.append(o)
		q.mu.Unlock()
	} else {
		t := &turn{o: o, ready: make(chan struct{})}
		place := q.waiting.PushBack(t)
		q.mu.Unlock()
		select {
		case <-t.ready:
		case <-ctx.Done():
			q.mu.Lock()
			select {
			case <-t.ready: // meanwhile
			default:
				q.waiting.Remove(place)
				q.admit() // a smaller one behind it may fit
				q.mu.Unlock()
				return notSent(o, ctx.Err())
			}
			q.mu.Unlock()
		}
		if t.err != nil {
			return t.err
		}
	}
	if !o.post && ctx.Done() != nil {
		stop := context.AfterFunc(ctx, func() { q.giveUp(o, ctx.Err()) })
		q.mu.Lock()
		defer q.mu.Unlock()
		if o.queued {
			o.release = stop
		} else {
			stop()
		}
	}
	return nil
}

// fits: one send always does when nothing else is under way.
func (q *sendQueue) fits(o *outgoing) bool {
	return q.count == 0 || q.count < q.maxCount && q.bytes+o.size <= q.maxBytes
}

func (q *sendQueue) append(o *outgoing) {
	o.queued = true
	o.prev = q.tail
	if q.tail == nil {
		q.head = o
	} else {
		q.tail.next = o
	}
	q.tail = o
	if q.unwritten == nil {
		q.unwritten = o
	}
	q.count++
	q.bytes += o.size
	if !o.post {
		q.requests[o.msg.GetRequestId()] = o
	}
	if q.link != nil {
		q.link.kick()
	}
}

// admit lets in who waits, in order, as far as there is room.
func (q *sendQueue) admit() {
	for e := q.waiting.Front(); e != nil; e = q.waiting.Front() {
		t := e.Value.(*turn)
		if !q.fits(t.o) {
			return
		}
		q.waiting.Remove(e)
		q.append(t.o)
		close(t.ready)
	}
}

// end takes a send out of the queue with its outcome.
func (q *sendQueue) end(o *outgoing, r Receipt, err *Error) {
	if !o.queued {
		return
	}
	o.queued = false
	if q.unwritten == o {
		q.unwritten = o.next
	}
	if o.prev == nil {
		q.head = o.next
	} else {
		o.prev.next = o.next
	}
	if o.next == nil {
		q.tail = o.prev
	} else {
		o.next.prev = o.prev
	}
	o.prev, o.next = nil, nil
	delete(q.requests, o.msg.GetRequestId())
	q.count--
	q.bytes -= o.size
	if o.release != nil {
		o.release()
	}
	o.pending.receipt = r
	if err != nil {
		o.pending.err = err
		if o.post {
			q.notices.put(Refused{Err: err})
		}
	}
	close(o.pending.done)
	q.admit()
	if q.count == 0 && q.emptied != nil {
		close(q.emptied)
		q.emptied = nil
	}
}

// attach begins a session: everything unanswered is to be written, in order.
// What may have been stored is repeated only where that is safe.
func (q *sendQueue) attach(l *link) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.link = l
	safe := q.idempotent && l.session.Extended
	q.idempotent = l.session.Extended
	for o := q.head; o != nil; {
		next := o.next
		if o.writes > 0 && (!safe || o.writes >= maxWrites || elapsed(o.firstWrite) > repeatFor) {
			q.end(o, Receipt{}, unknownOutcome(o, safe, "the connection broke before the answer, and a repeat is not safe", nil))
		}
		o = next
	}
	q.unwritten = q.head
}

func (q *sendQueue) detach(l *link) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.link == l {
		q.link = nil
	}
}

// next returns the send that is to be written now, or nil.
func (q *sendQueue) next(l *link) *outgoing {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.unwritten
	if o == nil || q.link != l {
		return nil
	}
	q.unwritten = o.next
	if o.writes++; o.writes == 1 {
		o.firstWrite = time.Now()
	}
	return o
}

// written ends what gets no answer.
func (q *sendQueue) written(l *link, o *outgoing) {
	if !o.post && l.session.Extended {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.end(o, Receipt{MessageID: o.msg.GetMessageId(), To: o.msg.GetTargetTopic()}, nil)
}

// stored hands a receipt to its send.
func (q *sendQueue) stored(r *aetherv1.SendReceipt) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if o := q.requests[r.GetRequestId()]; o != nil {
		q.end(o, Receipt{
			MessageID: o.msg.GetMessageId(), To: o.msg.GetTargetTopic(), Confirmed: true, Duplicate: r.GetDuplicate(),
			Outcome: receiptOutcome(r.GetStatus()), Reason: r.GetReason(), Acked: int(r.GetAcked()), Eligible: int(r.GetEligible()),
		}, nil)
	}
}

// refuse hands a refusal to its send. It reports false if nobody waits for it.
func (q *sendQueue) refuse(id string, e *Error) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	o := q.requests[id]
	if id == "" || o == nil {
		return false
	}
	e.idempotent = q.idempotent
	q.end(o, Receipt{}, e.of(o))
	return true
}

// giveUp ends a send whose context has ended.
func (q *sendQueue) giveUp(o *outgoing, cause error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if o.writes == 0 {
		q.end(o, Receipt{}, notSent(o, cause))
		return
	}
	q.end(o, Receipt{}, unknownOutcome(o, q.idempotent, "no answer yet: "+cause.Error(), cause))
}

// close refuses new sends; the first reason counts. The channel is closed when
// no send is under way any more.
func (q *sendQueue) close(reason *Error) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed == nil {
		told := *reason
		told.notStored = true
		q.closed = &told
	}
	for e := q.waiting.Front(); e != nil; e = q.waiting.Front() {
		t := q.waiting.Remove(e).(*turn)
		t.err = q.closed.of(t.o)
		close(t.ready)
	}
	if q.count == 0 {
		empty := make(chan struct{})
		close(empty)
		return empty
	}
	if q.emptied == nil {
		q.emptied = make(chan struct{})
	}
	return q.emptied
}

// abort ends every send, because there will be no further session.
func (q *sendQueue) abort(reason *Error) {
	q.close(reason)
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.head != nil {
		o := q.head
		err := notSent(o, reason)
		if o.writes > 0 {
			err = unknownOutcome(o, q.idempotent, "the connection ended before the answer: "+reason.Error(), reason)
		}
		q.end(o, Receipt{}, err)
	}
}

// elapsed is the time since then by the wall clock, if that says more: the other
// one stands still while a machine sleeps, and the gateway's does not.
func elapsed(since time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(since), now.Round(0).Sub(since.Round(0)))
}

// of is a copy of the error that names the send.
func (e *Error) of(o *outgoing) *Error {
	c := *e
	return c.at(o.msg)
}

func notSent(o *outgoing, cause error) *Error {
	e := &Error{Code: CodeNotSent, Message: "not sent: " + cause.Error(), Retryable: true, notStored: true, cause: cause}
	return e.at(o.msg)
}

func unknownOutcome(o *outgoing, idempotent bool, why string, cause error) *Error {
	e := &Error{Code: CodeUnknownOutcome, Message: "may have been stored: " + why, Retryable: true, cause: cause}
	e.idempotent = idempotent && elapsed(o.firstWrite) <= repeatFor
	return e.at(o.msg)
}
