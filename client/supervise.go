package client

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// maxUnauthenticated is how many tokens of a TokenSource may be refused in a row.
const maxUnauthenticated = 3

// renewAfter is how long a session must have lasted for its expired token to be
// replaced at once.
const renewAfter = time.Second

// connectFirst makes the first connection, within the time that Connect has.
func (c *Client) connectFirst(ctx context.Context) (*link, error) {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(c.opts.ConnectTimeout, c.opts.WaitForIdentity))
		defer cancel()
	}
	p := c.newPolicy(true)
	var e *Error
	for tries := 1; ; tries++ {
		l, err := c.open(ctx, "")
		if err == nil {
			return l, nil
		}
		if e == nil || ctx.Err() == nil { // the end of ctx says less than what was before
			e = asError(err)
		}
		if !p.again(e) {
			return nil, e
		}
		if !pause(ctx, p.pauses.next(e.RetryAfter)) {
			told := *e
			told.Message += fmt.Sprintf(" (tried %d times)", tries)
			return nil, &told
		}
		c.opts.Logger.Warn("cannot connect", "addr", c.addr(), "identity", c.opts.Identity.String(), "error", e)
		c.moveOn()
	}
}

// begin makes a link the current session.
func (c *Client) begin(l *link) {
	c.mu.Lock()
	c.session, c.current = l.session, l
	c.mu.Unlock()
	c.opts.Logger.Info("connected", "addr", c.addr(), "identity", c.opts.Identity.String(),
		"session", l.session.ID, "resumed", l.session.Resumed)
	c.notices.put(Connected{Session: l.session})
}

// supervise runs one session after the other, until Close or until there is no
// point in another one.
func (c *Client) supervise(l *link) {
	p := c.newPolicy(false)
	for {
		err := l.run(c.leave)
		c.mu.Lock()
		c.current = nil
		c.mu.Unlock()
		if err == nil || c.leaving() {
			c.finish(nil)
			return
		}
		e, lasted := asError(err), time.Since(l.began)
		p.lost(lasted)
		if l = c.reconnect(p, e, lasted); l == nil {
			return
		}
		c.begin(l)
	}
}

// reconnect makes the next connection. It returns nil after it has finished the
// client, because there will be none.
//
// A session whose token has expired is followed by one with a new token, if there
// is a source of them: at once and without a notice, because nothing is wrong.
func (c *Client) reconnect(p *policy, e *Error, lasted time.Duration) *link {
	resume := c.Session().ID
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	go func() { // a clean Close needs no further session
		select {
		case <-c.leave:
			cancel()
		case <-ctx.Done():
		}
	}()
	what := "connection lost"
	for renew := p.mayRenew(e) && lasted >= renewAfter; ; renew = false {
		if !p.again(e) {
			c.finish(e)
			return nil
		}
		wait := time.Duration(0)
		if renew {
			c.opts.Logger.Info("credential expired, connecting with a new one", "identity", c.opts.Identity.String())
		} else {
			if what == "connection lost" {
				c.notices.put(Disconnected{Err: e})
			}
			wait = p.pauses.next(e.RetryAfter)
			c.opts.Logger.Warn(what, "addr", c.addr(), "identity", c.opts.Identity.String(), "error", e, "next_attempt_in", wait)
			c.moveOn()
			what = "cannot connect"
		}
		if !pause(ctx, wait) {
			c.finish(nil)
			return nil
		}
		l, err := c.open(ctx, resume)
		if err == nil {
			return l
		}
		if c.leaving() {
			c.finish(nil)
			return nil
		}
		e = asError(err)
	}
}

// addr is the gateway that the client is connected to or tries next.
func (c *Client) addr() string {
	all := c.opts.addrs()
	return all[int(c.place.Load())%len(all)]
}

// moveOn makes the next attempt go to the next gateway.
func (c *Client) moveOn() { c.place.Add(1) }

func (c *Client) leaving() bool {
	select {
	case <-c.leave:
		return true
	default:
		return c.ctx.Err() != nil
	}
}

// finish ends the client; e is nil after Close.
func (c *Client) finish(e *Error) {
	reason := closedError()
	if e != nil {
		reason = &Error{}
		*reason = *e
		c.notices.put(Disconnected{Err: e, Final: true})
		c.opts.Logger.Error("connection lost for good", "addr", c.addr(), "identity", c.opts.Identity.String(), "error", e)
	}
	c.mu.Lock()
	c.end = e
	c.mu.Unlock()
	c.recv.stop(reason)
	c.sends.abort(reason)
	c.cancel()
	close(c.done)
}

// policy decides whether to try again, and when.
type policy struct {
	c         *Client
	first     bool // nothing has been held yet
	pauses    backoff
	refusals  int       // credentials refused in a row
	heldSince time.Time // since when somebody else is said to hold the identity
}

func (c *Client) newPolicy(first bool) *policy {
	return &policy{c: c, first: first, pauses: backoff{least: c.opts.MinBackoff, most: c.opts.MaxBackoff}}
}

// lost notes the end of a session. One that was short does not reset the pauses,
// so that a gateway that accepts and drops is not hammered.
func (p *policy) lost(after time.Duration) {
	if after > p.c.opts.MaxBackoff {
		p.pauses.reset()
	}
	p.refusals, p.heldSince = 0, time.Time{}
}

// mayRenew: a fresh token may be accepted where an old one was not.
func (p *policy) mayRenew(e *Error) bool {
	return e.Code == CodeUnauthenticated && p.c.opts.TokenSource != nil
}

func (p *policy) again(e *Error) bool {
	switch {
	case p.mayRenew(e):
		p.refusals++
		return p.refusals < maxUnauthenticated
	case e.terminal, p.first && e.Code == CodeTokenSource:
		return false
	case e.Code == CodeDuplicateIdentity:
		// It may be our own dead connection that holds it, or that of the process
		// before this one.
		if p.heldSince.IsZero() {
			p.heldSince = time.Now()
		}
		limit := p.c.opts.WaitForIdentity
		if !p.first {
			limit = max(limit, heldFor)
		}
		return time.Since(p.heldSince) < limit
	}
	p.refusals = 0
	return true
}

// init is the first frame of a stream.
func (c *Client) init(credential map[string]string, resume string) *aetherv1.InitConnection {
	init := &aetherv1.InitConnection{
		Credentials: credential, ResumeSessionId: resume, Workspace: c.startIn(),
		ClientSdk: "aether-go", ClientVersion: c.opts.Name, ClientBuildInfo: buildInfo(),
		Delivery: &aetherv1.DeliveryOptions{
			AckMode: aetherv1.AckMode_ACK_MODE_CLIENT, MaxUnacked: uint32(c.opts.MaxUnacked), Echo: c.opts.Echo,
			Filters: c.filters.proto(),
		},
	}
	c.opts.Identity.claim(init)
	return init
}

// credential returns the credentials of an init or reauthenticate frame.
func (c *Client) credential(ctx context.Context) (map[string]string, error) {
	o := &c.opts
	token := o.Token
	switch {
	case o.APIKey != "":
		return map[string]string{"x-api-key": o.APIKey}, nil
	case o.TaskToken != "":
		return map[string]string{"token": o.TaskToken}, nil
	case o.TokenSource != nil:
		var err error
		ctx, cancel := context.WithTimeout(ctx, o.ConnectTimeout)
		defer cancel()
		if token, err = o.TokenSource(ctx); err != nil {
			return nil, &Error{Code: CodeTokenSource, Message: err.Error(), Retryable: true, cause: err}
		}
	}
	if token == "" {
		return nil, nil
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

func (c *Client) setConfig(config Config) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.config = config
	select {
	case <-c.configured:
	default:
		close(c.configured)
	}
}

func (c *Client) renewed(expiresMs int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session.CredentialExpires = time.Time{}
	if expiresMs > 0 {
		c.session.CredentialExpires = time.UnixMilli(expiresMs)
	}
}

// serve is one handler goroutine.
func (c *Client) serve() {
	for {
		m, err := c.recv.take(context.Background()) // finish ends it
		if err != nil {
			return
		}
		err = c.handle(m)
		switch {
		case err == nil && !c.opts.ExplicitAcks:
			m.Ack()
		case err == nil:
		case isDrop(err):
			m.Drop(err.Error())
		default:
			m.Nack(err.Error())
		}
		if err != nil {
			c.opts.Logger.Warn("handler failed", "source", m.Source, "message_id", m.ID, "error", err)
			c.notices.put(HandlerFailed{Message: m, Err: err})
		}
		c.recv.done(m)
	}
}

// handle calls the handler and turns a panic into an error. What was thrown may
// hold anything, so it is logged here and not sent to the gateway.
func (c *Client) handle(m *Message) (err error) {
	defer func() {
		if x := recover(); x != nil {
			err = errHandlerPanic
			c.opts.Logger.Error("handler panicked", "source", m.Source, "message_id", m.ID,
				"panic", fmt.Sprint(x), "stack", string(debug.Stack()))
		}
	}()
	return c.opts.Handler(c.ctx, m)
}

func asError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	e := broken("%v", err)
	e.cause = err
	return e
}
