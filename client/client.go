package client

import (
	"context"
	"errors"
	"iter"
	"sync"
	"sync/atomic"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Client is one connected principal. Make it with [Connect] and end it with
// [Client.Close]. All methods may be called by many goroutines at once.
type Client struct {
	opts     Options
	ctx      context.Context // ends when nothing is to go on: handlers, streams
	cancel   context.CancelFunc
	sends    *sendQueue
	recv     *receiver
	requests *requests
	calls    *calls
	follows  follows
	notices  *notices
	filters  *filterList

	requestSeq atomic.Uint64
	handlers   sync.WaitGroup
	closing    atomic.Bool
	place      atomic.Uint32 // which address is next
	leave      chan struct{} // closed: end the session cleanly
	done       chan struct{} // closed: it has ended

	mu         sync.Mutex // a leaf: nothing else is locked while it is held
	session    Session
	current    *link  // nil between sessions
	workspace  string // of a user: where the next session begins
	config     Config
	configured chan struct{} // closed when config is set
	end        *Error        // why it ended; nil while it lives and after Close
}

// Connect connects and returns when the gateway has accepted the identity.
//
// What may pass is tried again: until ctx ends or, if it has no deadline, for
// [Options.ConnectTimeout]. What would not pass (a wrong option or credential, a
// claim beyond it) is returned at once, and so is an identity that somebody else
// holds, unless [Options.WaitForIdentity] is set.
// The error is an *Error. The end of ctx does not end the client; Close does.
func Connect(ctx context.Context, opts Options) (*Client, error) {
	c, err := newClient(opts)
	if err != nil {
		return nil, err
	}
	first, err := c.connectFirst(ctx)
	if err != nil {
		c.cancel()
		return nil, err
	}
	if opts.OnNotice != nil {
		go c.notices.run(c.done)
	}
	c.begin(first)
	if opts.Handler != nil {
		for range c.opts.Concurrency {
			c.handlers.Go(c.serve)
		}
	}
	go c.supervise(first)
	return c, nil
}

// newClient makes a client that is not connected and runs nothing yet.
func newClient(opts Options) (*Client, error) {
	if err := opts.fill(); err != nil {
		return nil, err
	}
	c := &Client{
		opts:       opts,
		workspace:  opts.Workspace,
		notices:    newNotices(opts.OnNotice),
		filters:    newFilterList(opts.Filters),
		leave:      make(chan struct{}),
		done:       make(chan struct{}),
		configured: make(chan struct{}),
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.sends = newSendQueue(c)
	c.requests = newRequests(c.notices, c.Address)
	c.calls = newCalls()
	c.recv = newReceiver(c)
	return c, nil
}

// Session is the current session, or the last one between two.
func (c *Client) Session() Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// Address is where messages reach this principal: its identity's address or, for
// a [Task], the one that the gateway assigned. It is "" if nothing addresses it.
func (c *Client) Address() string { return c.Session().Address }

// Config waits for the configuration that the gateway sends to agents and tasks
// right after they connected; others get an error at once. Its maps are shared
// and read only.
func (c *Client) Config(ctx context.Context) (Config, error) {
	if !c.opts.Identity.snapshot() {
		return Config{}, &Error{Code: CodeInvalidPrincipal, Message: c.opts.Identity.String() + " gets no configuration"}
	}
	select {
	case <-c.configured:
	case <-c.done:
		return Config{}, c.endError()
	case <-ctx.Done():
		return Config{}, gaveUp("no configuration yet", ctx.Err())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.config, nil
}

// Done is closed when the client has ended: closed, or given up.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err is why the client ended by itself. It is nil while it lives, also between
// two sessions, and after Close.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end == nil {
		return nil
	}
	return c.end
}

// endError is Err for calls that come too late, never nil.
func (c *Client) endError() *Error {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := closedError()
	if c.end != nil {
		*e = *c.end
	}
	return e
}

// Receive waits for the next message. Acknowledge it by [Message.Ack], or ask for
// it again by [Message.Nack]: after [Options.MaxUnacked] unacknowledged messages
// no more come. It is for clients without a Handler. The error
// has CodeGaveUp when ctx ended, or says that the client has ended or is being
// closed.
func (c *Client) Receive(ctx context.Context) (*Message, error) {
	if c.opts.Handler != nil {
		return nil, &Error{Code: CodeInvalidArgument, Message: "Receive and Messages are for clients without a Handler"}
	}
	return c.recv.take(ctx)
}

// Messages ranges over [Client.Receive] until ctx or the client ends; Err says
// in which way.
//
//	for m := range c.Messages(ctx) {
//		work(m)
//		m.Ack()
//	}
func (c *Client) Messages(ctx context.Context) iter.Seq[*Message] {
	return func(yield func(*Message) bool) {
		for {
			m, err := c.Receive(ctx)
			if err != nil || !yield(m) {
				return
			}
		}
	}
}

// SendFrame writes a frame that this package has no method for: task operations,
// a heartbeat. It waits until the frame is written.
// Answers come as [Frame] or [Refused] notices. Frames are not repeated after a
// break, and are refused between two sessions. The frame must not be changed
// afterwards; sends, acknowledgements and init frames are refused.
func (c *Client) SendFrame(ctx context.Context, frame *aetherv1.UpstreamMessage) error {
	switch frame.GetPayload().(type) {
	case nil, *aetherv1.UpstreamMessage_Init, *aetherv1.UpstreamMessage_Send, *aetherv1.UpstreamMessage_Ack:
		return &Error{Code: CodeInvalidArgument, Message: "SendFrame does not take this kind of frame"}
	}
	l, err := c.connected()
	if err != nil {
		return err
	}
	return l.sendFrame(ctx, frame)
}

// Close ends the client in order: no further handler starts, the running ones
// end, sends get their answers, acknowledgements are written, and the stream is
// half-closed, which tells the gateway that this principal has left (and, for a
// task, that it is completed). Messages that no handler has begun come again to
// the next session of this identity.
//
// When ctx ends first, the rest is cut off: the error has CodeGaveUp, sends without
// an answer fail, and handlers see their context end but are not waited for.
// Close may be called again, and concurrently; from inside a handler call it in
// a goroutine of its own, since it waits for the handler.
func (c *Client) Close(ctx context.Context) error {
	if c.closing.CompareAndSwap(false, true) {
		err := c.finishWork(ctx)
		if err != nil {
			c.cancel()
		}
		close(c.leave)
		if err != nil {
			<-c.done
			return err
		}
	}
	select {
	case <-c.done:
		return nil
	case <-ctx.Done():
	}
	c.cancel()
	<-c.done
	return gaveUp("closed without waiting any longer", ctx.Err())
}

// finishWork waits for handlers and for the answers to sends.
func (c *Client) finishWork(ctx context.Context) error {
	c.recv.stop(closedError())
	handled := make(chan struct{})
	go func() { c.handlers.Wait(); close(handled) }()
	for _, step := range []func() <-chan struct{}{
		func() <-chan struct{} { return handled },
		func() <-chan struct{} { return c.sends.close(closedError()) },
	} {
		select {
		case <-step():
		case <-c.done:
			return nil
		case <-ctx.Done():
			return gaveUp("closed without waiting any longer", ctx.Err())
		}
	}
	return nil
}

var errHandlerPanic = errors.New("the handler panicked")
