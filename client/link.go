package client

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

const (
	// silences is how many heartbeat intervals without a frame make a dead gateway.
	silences = 3
	// leaveFor bounds the wait for the gateway's end of the stream after ours.
	leaveFor = 10 * time.Second
	// drainFor is how long a gateway that is going is listened to, if it did not
	// say when to leave.
	drainFor = 30 * time.Second
)

// link is one stream, from InitConnection to its end. Only its writer goroutine
// sends on the stream, only run receives.
type link struct {
	c       *Client
	conn    *grpc.ClientConn
	stream  grpc.BidiStreamingClient[aetherv1.UpstreamMessage, aetherv1.DownstreamMessage]
	ctx     context.Context
	cancel  context.CancelCauseFunc
	session Session
	began   time.Time

	wakeup chan struct{} // capacity 1: there may be something to write
	raw    chan *rawFrame
	heard  atomic.Int64 // when the last frame came, as a duration since began
	tasks  sync.WaitGroup

	draining   atomic.Bool // the gateway is going: write no new sends
	renewals   *renewals
	switches   *switches
	comeBackAt atomic.Int64 // the gateway's hint, as a duration since began
}

// open makes a connection of its own, so that a dead one is never used again, and
// performs the handshake. The error is an *Error.
func (c *Client) open(ctx context.Context, resume string) (*link, error) {
	credential, err := c.credential(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(c.addr(), c.opts.dialOptions(c.addr())...)
	if err != nil {
		return nil, &Error{Code: CodeInvalidArgument, Message: err.Error(), terminal: true, cause: err}
	}
	l := &link{c: c, conn: conn, wakeup: make(chan struct{}, 1), raw: make(chan *rawFrame), renewals: newRenewals(credential), switches: newSwitches()}
	l.ctx, l.cancel = context.WithCancelCause(c.ctx)
	if err := l.handshake(ctx, c.init(credential, resume)); err != nil {
		l.cancel(err)
		conn.Close() //nolint:errcheck // the handshake's error says more
		return nil, err
	}
	return l, nil
}

func (l *link) handshake(ctx context.Context, init *aetherv1.InitConnection) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.c.opts.ConnectTimeout,
		broken("no answer within %s", l.c.opts.ConnectTimeout))
	defer cancel()
	watch := context.AfterFunc(ctx, func() { l.cancel(context.Cause(ctx)) })
	defer watch()
	var err error
	if l.stream, err = aetherv1.NewAetherGatewayClient(l.conn).Connect(l.ctx); err != nil {
		e := l.failure(err)
		if e.Code == CodeUnavailable { // no gateway can have said so yet
			e.Code = CodeConnection
		}
		return e
	}
	err = l.stream.Send(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Init{Init: init}})
	if err != nil && !errors.Is(err, io.EOF) { // after EOF, Recv has the reason
		return l.failure(err)
	}
	var told *Error // a refusal that comes before the status says more
	for {
		frame, err := l.stream.Recv()
		if err != nil {
			e := l.failure(err)
			if told != nil && e.RetryAfter == 0 {
				e.RetryAfter = told.RetryAfter
			}
			return e
		}
		switch f := frame.GetPayload().(type) {
		case *aetherv1.DownstreamMessage_Error:
			told = fromResponse(f.Error)
		case *aetherv1.DownstreamMessage_ConnectionAck:
			if !watch() { // too late: the timeout is ending the stream
				<-l.ctx.Done()
				return l.failure(l.ctx.Err())
			}
			l.session = newSession(l.c.opts.Identity, f.ConnectionAck)
			if !l.session.Extended && len(init.GetDelivery().GetFilters()) > 0 {
				return noFilters() // it would deliver what is not wanted
			}
			l.began = time.Now()
			return nil
		default:
			e := broken("the first frame was not a ConnectionAck but %T", f)
			e.terminal = true
			return e
		}
	}
}

// failure is why the stream ended: our own reason, if we ended it, or the
// gateway's status.
func (l *link) failure(err error) *Error {
	if l.ctx.Err() != nil {
		if cause, ok := errors.AsType[*Error](context.Cause(l.ctx)); ok {
			return cause
		}
		e := broken("given up: %v", context.Cause(l.ctx))
		e.cause = context.Cause(l.ctx)
		return e
	}
	if errors.Is(err, io.EOF) {
		return broken("the gateway ended the stream")
	}
	return fromStatus(err)
}

// run serves the session to its end and says why it ended; nil after leave.
func (l *link) run(leave <-chan struct{}) error {
	l.c.sends.attach(l)
	l.c.recv.attach(l)
	l.tasks.Go(func() { l.write(leave) })
	if l.session.Extended && l.session.Heartbeat > 0 {
		l.tasks.Go(l.watch)
	}
	if all := l.c.follows.asked(); len(all) > 0 {
		l.tasks.Go(func() { l.refollow(all) })
	}
	err := l.read()
	select {
	case <-leave:
		if errors.Is(err, io.EOF) {
			err = nil
		}
	default:
	}
	var end *Error
	if err != nil && !errors.As(err, &end) {
		end = l.failure(err)
	}
	l.cancel(errors.New("the session ended"))
	l.c.sends.detach(l)
	l.c.recv.detach(l)
	l.c.calls.detach(l)
	l.tasks.Wait()
	l.conn.Close() //nolint:errcheck // nothing depends on it any more
	if end == nil {
		return nil
	}
	told := *end // others may be reading it
	told.RetryAfter = max(end.RetryAfter, time.Duration(l.comeBackAt.Load())-time.Since(l.began))
	return &told
}

// read is the receive loop. It never waits for handlers, callers or the writer,
// but for room when the gateway knows no acknowledgements.
func (l *link) read() error {
	for {
		frame, err := l.stream.Recv()
		if err != nil {
			return err
		}
		l.heard.Store(int64(time.Since(l.began)))
		if err := l.dispatch(frame); err != nil {
			return err
		}
	}
}

func (l *link) dispatch(frame *aetherv1.DownstreamMessage) error {
	c := l.c
	switch f := frame.GetPayload().(type) {
	case *aetherv1.DownstreamMessage_Msg:
		return c.recv.put(l, f.Msg)
	case *aetherv1.DownstreamMessage_Receipt:
		c.sends.stored(f.Receipt)
	case *aetherv1.DownstreamMessage_Error:
		e := fromResponse(f.Error)
		if id := f.Error.GetRequestId(); !c.sends.refuse(id, e) && !c.calls.refused(id, e) && !l.renewals.refused(e) && !l.switches.refused(e) && !l.c.filters.take(l, e) {
			// It has no request id; what names it is in the details, if anything.
			e.To, e.MessageID = e.Details["topic"], e.Details["message_id"]
			c.notices.put(Refused{Err: e})
		}
	case *aetherv1.DownstreamMessage_Signal:
		return l.signal(f.Signal)
	case *aetherv1.DownstreamMessage_Heartbeat:
		// It has been heard; an answer would be answered.
	case *aetherv1.DownstreamMessage_Config:
		c.setConfig(newConfig(f.Config))
	case *aetherv1.DownstreamMessage_Kv:
		l.answer(f.Kv.GetRequestId(), frame)
	case *aetherv1.DownstreamMessage_AuthorityGrant:
		l.answer(f.AuthorityGrant.GetRequestId(), frame)
	case *aetherv1.DownstreamMessage_AuthorityGrantRevocation:
		r := f.AuthorityGrantRevocation
		c.notices.put(GrantRevoked{ID: r.GetGrantId(), RootID: r.GetRootGrantId(), Reason: r.GetReason(), At: time.Unix(r.GetRevokedAt(), 0)})
	case *aetherv1.DownstreamMessage_Checkpoint:
		l.answer(f.Checkpoint.GetRequestId(), frame)
	case *aetherv1.DownstreamMessage_CreateTask:
		l.answer(f.CreateTask.GetRequestId(), frame)
	case *aetherv1.DownstreamMessage_TaskQuery:
		l.answer(f.TaskQuery.GetRequestId(), frame)
	case *aetherv1.DownstreamMessage_TaskOp:
		l.answer(f.TaskOp.GetRequestId(), frame)
	case *aetherv1.DownstreamMessage_TaskSubscriptionResponse:
		l.answer(f.TaskSubscriptionResponse.GetClientRequestId(), frame)
	case *aetherv1.DownstreamMessage_ConnectionStatusResponse:
		l.answer(f.ConnectionStatusResponse.GetRequestId(), frame)
	case *aetherv1.DownstreamMessage_TaskEvent:
		l.taskEvent(f.TaskEvent, frame)
	case *aetherv1.DownstreamMessage_TaskAssignment:
		if c.opts.Identity.kind == kindOrchestrator {
			c.notices.put(Assigned{Assignment: newAssignment(f.TaskAssignment)})
			break
		}
		c.notices.put(newTaskAssigned(f.TaskAssignment))
	case *aetherv1.DownstreamMessage_Gap:
		c.notices.put(Gap{Topic: f.Gap.GetTopic(), Reason: gapReason(f.Gap.GetReason()), Dropped: f.Gap.GetDropped()})
	case *aetherv1.DownstreamMessage_ProgressUpdate:
		c.notices.put(Progressed{Progress: newProgress(f.ProgressUpdate)})
	case *aetherv1.DownstreamMessage_WorkspaceSwitched:
		// Also one that was asked for by SendFrame: the gateway has moved it.
		c.moved(f.WorkspaceSwitched.GetWorkspace())
		l.switches.switched(nil)
	case *aetherv1.DownstreamMessage_CredentialExpiring:
		at := time.UnixMilli(f.CredentialExpiring.GetExpiresAtMs())
		c.notices.put(CredentialExpiring{At: at})
		if c.opts.TokenSource != nil && l.renewals.begin() {
			l.tasks.Go(func() { l.renew(at) })
		}
	case *aetherv1.DownstreamMessage_Reauthenticated:
		c.renewed(f.Reauthenticated.GetExpiresAtMs())
		l.renewals.answer(nil)
	default:
		c.notices.put(Frame{Frame: frame})
	}
	return nil
}

// answer hands an answer to who waits for it; others are told of it as of any
// frame.
func (l *link) answer(id string, frame *aetherv1.DownstreamMessage) {
	if !l.c.calls.answered(id, frame) {
		l.c.notices.put(Frame{Frame: frame})
	}
}

func gapReason(r aetherv1.HistoryGap_Reason) string {
	switch r {
	case aetherv1.HistoryGap_REASON_RETENTION:
		return "retention"
	case aetherv1.HistoryGap_REASON_LAGGED:
		return "lagged"
	case aetherv1.HistoryGap_REASON_RECREATED:
		return "recreated"
	case aetherv1.HistoryGap_REASON_DAMAGED:
		return "damaged"
	}
	return "unknown"
}

// signal obeys the gateway. One that is going is listened to until it ends the
// stream or the time it gave is over, so that sends under way get their answers;
// new ones wait for the next session. The stream is not half-closed: that would
// say that this principal has finished its work.
func (l *link) signal(s *aetherv1.Signal) error {
	if s.GetType() == aetherv1.Signal_SIGNAL_TYPE_FORCE_DISCONNECT {
		e := &Error{Code: CodeDisconnected, Message: "the gateway ended the session", terminal: true}
		if s.GetReason() != "" {
			e.Message += ": " + s.GetReason()
		}
		if s.GetCode() != "" {
			e.Details = map[string]string{"code": s.GetCode()}
		}
		return e
	}
	hint := milliseconds(s.GetReconnectAfterMs())
	l.comeBackAt.Store(int64(time.Since(l.began) + hint))
	if l.draining.Swap(true) {
		return nil
	}
	l.tasks.Go(func() {
		if hint == 0 {
			hint = drainFor
		}
		if pause(l.ctx, hint) {
			l.cancel(broken("the gateway is going: %s", s.GetReason()))
		}
	})
	return nil
}

// watch ends the stream when the gateway has been silent for too long.
func (l *link) watch() {
	limit := silences * l.session.Heartbeat
	for {
		silent := time.Since(l.began) - time.Duration(l.heard.Load())
		if silent >= limit {
			l.cancel(broken("nothing heard from the gateway for %s", limit))
			return
		}
		if !pause(l.ctx, limit-silent) {
			return
		}
	}
}
