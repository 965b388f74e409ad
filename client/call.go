package client

import (
	"context"
	"strconv"
	"sync"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// calls are requests other than sends that wait for their typed answer, found by
// its request id. They are not repeated: one whose session ends before its answer
// fails, since it may have been acted on. Safe for concurrent use. Bounded by
// those who wait, one for each caller.
type calls struct {
	mu      sync.Mutex
	waiting map[string]*waitingCall
}

type waitingCall struct {
	link   *link
	answer chan *aetherv1.DownstreamMessage // capacity 1
	failed chan *Error                      // capacity 1
}

func newCalls() *calls { return &calls{waiting: make(map[string]*waitingCall)} }

func (cs *calls) open(id string, l *link) *waitingCall {
	w := &waitingCall{link: l, answer: make(chan *aetherv1.DownstreamMessage, 1), failed: make(chan *Error, 1)}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.waiting[id] = w
	return w
}

func (cs *calls) close(id string) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	delete(cs.waiting, id)
}

func (cs *calls) find(id string) *waitingCall {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return cs.waiting[id]
}

// answered hands an answer to the call that waits for it, and reports whether
// there is one.
func (cs *calls) answered(id string, frame *aetherv1.DownstreamMessage) bool {
	w := cs.find(id)
	if w == nil {
		return false
	}
	select {
	case w.answer <- frame:
	default: // a second one
	}
	return true
}

// refused is answered for an error.
func (cs *calls) refused(id string, e *Error) bool {
	w := cs.find(id)
	if w == nil {
		return false
	}
	select {
	case w.failed <- e:
	default:
	}
	return true
}

// detach fails what a session has not answered.
func (cs *calls) detach(l *link) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	for _, w := range cs.waiting {
		if w.link == l {
			select {
			case w.failed <- &Error{Code: CodeUnknownOutcome, Message: "the session ended before the answer came", Retryable: true}:
			default:
			}
		}
	}
}

// explainFor is how long the error that explains a failed answer may take to
// follow on it.
const explainFor = time.Second

// call makes a request, whose frame make fills with the id, and waits for its
// answer. An answer that failed, by what make said of it, is followed by the
// error that says why.
func (c *Client) call(ctx context.Context, make func(id string) *aetherv1.UpstreamMessage, failed func(*aetherv1.DownstreamMessage) bool) (*aetherv1.DownstreamMessage, error) {
	c.mu.Lock()
	l := c.current
	c.mu.Unlock()
	select {
	case <-c.done:
		return nil, c.endError()
	default:
	}
	if l == nil {
		return nil, broken("not connected at the moment")
	}
	id := "c" + strconv.FormatUint(c.requestSeq.Add(1), 36)
	w := c.calls.open(id, l)
	defer c.calls.close(id)
	if err := l.sendFrame(ctx, make(id)); err != nil {
		return nil, err
	}
	var explained <-chan time.Time
	for {
		select {
		case frame := <-w.answer:
			if failed == nil || !failed(frame) {
				return frame, nil
			}
			timer := time.NewTimer(explainFor)
			defer timer.Stop()
			explained = timer.C
		case e := <-w.failed:
			return nil, e
		case <-explained:
			return nil, &Error{Code: CodeInternal, Message: "the gateway says that the request failed, and not why"}
		case <-l.ctx.Done():
			// The answer may be among what was read last.
			select {
			case frame := <-w.answer:
				if failed == nil || !failed(frame) {
					return frame, nil
				}
			case e := <-w.failed:
				return nil, e
			default:
			}
			return nil, &Error{Code: CodeUnknownOutcome, Message: "the session ended before the answer came", Retryable: true}
		case <-ctx.Done():
			return nil, &Error{Code: CodeUnknownOutcome, Message: "no answer: " + ctx.Err().Error(), Retryable: true, cause: ctx.Err()}
		}
	}
}
