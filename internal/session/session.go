package session

import (
	"context"
	"errors"
	"io"
	"math"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/delivery"
	"github.com/aether-gateway/gateway/internal/limits"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/task"
)

// Session is one connected principal. Two goroutines serve it: the one that gRPC
// gave it waits for its end, one receives; and, except in a lull, a third, the
// pump, sends.
type Session struct {
	m         *Manager
	st        Stream
	id        string
	identity  string
	kind      acl.Kind
	principal acl.Principal
	lease     presence.Lease
	place     atomic.Pointer[place] // where it is
	assigned  string                // the bare id of a non-unique task
	resumed   bool
	extended  bool // knows the extension: gets heartbeats, gaps and notices
	since     time.Time
	claim     auth.Identity // what the principal was bound to
	life      life
	renewals  renewals
	switches  pace // of the receiver
	started   started
	work      work

	extensions []*aetherv1.NegotiatedExtension

	// hears are the addresses that it reads, events the workspaces whose event
	// addresses. A change of workspace replaces hears, under handling.
	hears  []string
	events acl.WorkspaceSet
	// looking says that a question about a message is being answered; lookAgain
	// is when the next may come, of whoever has set looking.
	looking   atomic.Bool
	lookAgain time.Time

	reports reports
	box     *delivery.Mailbox
	sender  *router.Sender
	account *limits.Account // nil: nothing is limited
	worker  *task.Worker    // nil: no tasks are handed to it
	sub     *router.Subscription

	// unconfirmed says that predecessors' ids still count (delivery rule L5).
	unconfirmed atomic.Bool
	// handOver is what the session was done with when it ended.
	handOver atomic.Pointer[[]byte]

	handling sync.Mutex // held while a frame of the client is acted on

	lastSent  atomic.Int64 // Unix ms of the last frame
	answering atomic.Bool  // the answer to a heartbeat waits

	blockedAt atomic.Int64 // Unix ms since when a send has not returned; 0: none does

	once    sync.Once
	why     cause
	ended   chan struct{} // closed when why is set
	flush   chan struct{} // closed when the pump is to send what waits and stop
	rests   chan struct{} // the pump stops until something waits again
	lull    chan struct{} // nothing was sent for a while; holds one
	pumped  chan struct{} // closed when the pump has stopped for good
	broken  atomic.Bool   // the stream took no more of what the pump sent
	greeted bool          // of the pump
	left    chan struct{} // closed when the lease is free
}

// cause is why a session ends.
type cause struct {
	err error // the status of the stream
	// flush lets the pump send what waits; receipts waits before that until
	// every send has its answer; hurry says that somebody waits for the end.
	flush, receipts, hurry bool
	// closed says that the client half-closed and reads to the end; cancelled
	// that it cancelled the stream on a live connection (delivery rule A).
	closed, cancelled bool
	// within bounds how long the stream goes on; what is left to do then goes on
	// without it. 0: until all is done.
	within time.Duration
}

// end ends the session, once.
func (s *Session) end(why cause) { s.once.Do(func() { s.stop(why) }) }

// stop is for those who are the once.
func (s *Session) stop(why cause) {
	s.why = why
	close(s.ended)
}

// slow ends the session of a client that does not read its answers.
func (s *Session) slow() {
	s.m.stats.SlowReaders.Add(1)
	s.end(cause{err: status.Error(codes.ResourceExhausted, "the client does not read the answers to what it sends")})
}

// lagged ends the session of a client that is too slow for a topic whose slow
// readers are not to be let off with a loss. It does not wait.
func (s *Session) lagged(topic string) {
	s.m.stats.SlowReaders.Add(1)
	s.gap(router.Gap{Topic: topic, Reason: router.GapLagged})
	s.end(cause{err: status.Errorf(codes.ResourceExhausted, "the client is too slow for %s", topic), flush: true})
}

func (s *Session) urgent(frame []byte) {
	if !s.box.Urgent(frame) {
		s.slow()
	}
}

// run serves the session from its ConnectionAck on.
func (s *Session) run() error {
	s.m.wg.Go(func() { s.guard(s.receive) })
	s.watchLife()
	s.attend()
	if s.why.within == 0 {
		s.leave(s.why)
		return s.why.err
	}
	s.m.wg.Go(func() { s.guard(func() { s.leave(s.why) }) })
	timeout := time.NewTimer(s.why.within)
	defer timeout.Stop()
	select {
	case <-s.left:
	case <-timeout.C:
	}
	return s.why.err
}

// attend has the pump run whenever something waits, until the session ends; then
// it runs, too, to send what is left.
func (s *Session) attend() {
	for {
		s.m.wg.Go(func() { s.guard(s.pump) })
		select {
		case <-s.ended:
			return
		case <-s.rests:
		}
		select {
		case <-s.ended:
		case <-s.box.Wake():
		}
	}
}

// guard keeps a defect in one session from ending the process.
func (s *Session) guard(f func()) {
	defer func() {
		if r := recover(); r != nil {
			s.m.o.Logger.Error("a session panicked", "session", s.id, "panic", r, "stack", string(debug.Stack()))
			s.end(cause{err: status.Error(codes.Internal, "internal error")})
		}
	}()
	f()
}

// flushTimeout bounds how long a session that ends may still send, hurryTimeout
// if another waits for its place.
const (
	flushTimeout = 2 * time.Second
	hurryTimeout = 80 * time.Millisecond
)

// leave undoes everything: deliveries stop, positions are committed, the lease
// is freed (delivery rule S7).
func (s *Session) leave(why cause) {
	s.stopAlarm()
	s.leaveTasks()
	// What is being acted on is finished; nothing is acted on from here on.
	s.handling.Lock()
	s.handling.Unlock() //nolint:staticcheck // a barrier
	switch {
	case why.receipts:
		s.awaitReceipts()
	case why.hurry:
		s.endWork(hurryTimeout)
		// Before the watermark is handed over: nothing that it sent may be
		// stored after its successor has begun (delivery rules P5, L4).
		s.stopSending(hurryTimeout)
	}
	if !why.hurry {
		s.endWork(settleTimeout)
	}
	close(s.flush)
	if why.flush && !s.flushed(why.hurry) || s.broken.Load() || s.st.Lost() {
		why.closed = false // it does not read to the end
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.st.Context()), releaseTimeout)
	defer cancel()
	s.sub.Leave(ctx, router.Leaving{
		Settle: func() { s.settle(why) }, Hurry: why.hurry,
		Left: func(watermark []byte) { s.handOver.Store(&watermark) },
	})
	if !why.hurry {
		s.stopSending(settleTimeout)
	}
	s.m.release(s)
	s.m.remove(s)
	s.finished(why)
	close(s.left)
}

// settleTimeout bounds how long the lease is kept for what was sent and has no
// outcome yet.
const settleTimeout = time.Second

// stopSending drops what was sent and has no outcome after a while; of a lost
// lease at once.
func (s *Session) stopSending(limit time.Duration) {
	if s.lease.Lost() {
		s.sender.Drop()
	} else {
		s.sender.Leave(limit)
	}
}

// flushed waits until the pump has sent what waits, and reports whether it has.
func (s *Session) flushed(hurry bool) bool {
	limit := flushTimeout
	if hurry {
		limit = hurryTimeout
	}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case <-s.pumped:
		return true
	case <-timeout.C:
		return false
	}
}

// awaitReceipts waits until all that a client which sends nothing more has sent
// is answered.
func (s *Session) awaitReceipts() {
	ctx, cancel := context.WithTimeout(s.st.Context(), receiptTimeout)
	defer cancel()
	for _, answered := range []<-chan struct{}{s.work.settled(), s.sender.Settled()} {
		select {
		case <-answered:
		case <-ctx.Done():
		}
	}
	outcomes := time.NewTimer(outcomeTimeout)
	defer outcomes.Stop()
	select {
	case <-s.sender.Concluded():
	case <-outcomes.C:
	case <-ctx.Done():
	}
}

// outcomeTimeout bounds how long a client that sends nothing more may wait for the
// outcomes of what others are to acknowledge; its identity is held meanwhile.
const outcomeTimeout = 2 * time.Second

// receiptTimeout is longer than a send may be without an outcome.
const receiptTimeout = 7 * time.Second

// Bounds of delivery rule A. A frame has left for good when more bytes than
// all windows can hold were written after it: the largest that HTTP/2 clients
// give a stream, and what lies in buffers below it.
const (
	autoWindow     = 24 << 20
	autoCancelled  = time.Second
	blockedAfterMS = 200
)

// settle decides what a session in Auto mode is done with.
func (s *Session) settle(why cause) {
	now := s.m.running.Load()
	switch {
	case why.closed:
		s.box.Settle(0, math.MaxInt64, false)
	case why.cancelled:
		// The clock is as coarse as its tick.
		s.box.Settle(math.MaxUint64, now-(autoCancelled+watchInterval).Milliseconds(), false)
	default:
		s.box.Settle(autoWindow, now-(s.m.o.Keepalive+watchInterval).Milliseconds(), s.blocked())
	}
}

func (s *Session) blocked() bool {
	since := s.blockedAt.Load()
	return since != 0 && s.m.o.Now().UnixMilli()-since > blockedAfterMS
}

// check is called about once a second.
func (s *Session) check() {
	now := s.m.o.Now()
	if since := s.blockedAt.Load(); since != 0 && now.Sub(time.UnixMilli(since)) > s.m.o.WriteTimeout {
		s.m.stats.SlowReaders.Add(1)
		s.end(cause{err: status.Errorf(codes.Unavailable, "the client has read nothing for %s", s.m.o.WriteTimeout)})
		return
	}
	if s.expired(now) || s.lost() || s.dismissed() {
		return
	}
	s.watchLife()
	s.box.Settle(autoWindow, s.m.running.Load()-(s.m.o.Keepalive+watchInterval).Milliseconds(), s.blocked())
	silent := now.UnixMilli() - s.lastSent.Load()
	if silent >= watchInterval.Milliseconds() {
		select {
		case s.lull <- struct{}{}:
		default:
		}
	}
	if s.extended && silent >= (s.m.o.HeartbeatInterval-watchInterval).Milliseconds() {
		s.urgent(heartbeatFrame(now))
	}
}

// receive handles what the client sends. It never waits for the client to
// read.
func (s *Session) receive() {
	for {
		frame, err := s.st.Recv()
		bad, malformed := errors.AsType[*MalformedError](err)
		if err != nil && !malformed {
			s.end(s.receiveEnded(err))
			return
		}
		ok := false
		switch {
		case malformed:
			ok = s.act(func() { s.refuse(bad.RequestID, bad.refusal()) })
		case frame.GetSwitchWorkspace() != nil:
			ok = s.switchWorkspace(frame.GetSwitchWorkspace())
		default:
			ok = s.act(func() { s.handle(frame) })
		}
		if !ok {
			return
		}
	}
}

// act does something that one frame asks for. It reports false if the session
// has ended; nothing is done then.
func (s *Session) act(do func()) bool {
	s.handling.Lock()
	defer s.handling.Unlock()
	select {
	case <-s.ended:
		return false
	default:
	}
	if s.unconfirmed.Load() {
		s.unconfirmed.Store(false)
		s.m.o.Presence.Confirm(s.lease)
	}
	if s.expired(s.m.o.Now()) || s.lost() {
		return false
	}
	do()
	return true
}

func (s *Session) receiveEnded(err error) cause {
	if errors.Is(err, io.EOF) {
		return cause{closed: true, flush: true, receipts: true}
	}
	if why, gone := s.gone(); gone {
		return why
	}
	// A frame that is too large, or not of this protocol.
	return cause{err: err, flush: true}
}

// gone reports whether the client has gone, and how. Whoever notices it first,
// the pump or the receiver, must come to the same end (delivery rule A).
func (s *Session) gone() (cause, bool) {
	switch {
	case s.st.Lost():
		return cause{err: status.Error(codes.Unavailable, "the connection is gone")}, true
	case s.st.Context().Err() != nil:
		return cause{err: status.FromContextError(s.st.Context().Err()).Err(), cancelled: true}, true
	}
	return cause{}, false
}

// pump sends what waits, until the session has ended, or in a lull: who only
// listens, as most do most of the time, costs no goroutine for sending.
func (s *Session) pump() {
	rested := false
	defer func() {
		if !rested {
			close(s.pumped)
		}
	}()
	if !s.greeted {
		s.greeted = true
		if err := s.greet(); err != nil {
			s.broken.Store(true)
			s.end(cause{err: err})
			return
		}
	}
	var batch delivery.Batch
	flushing := false
	rests := s.rests
	for {
		if !flushing && (s.expired(s.m.o.Now()) || s.lost()) {
			<-s.flush
		}
		select {
		case <-s.flush:
			if !s.why.flush {
				return
			}
			if !flushing {
				s.box.OnlyAnswers()
			}
			flushing = true
		default:
		}
		took := s.box.Take(&batch)
		s.answering.Store(false) // before it is written: the next heartbeat may follow on it
		if took {
			if len(batch.Frames) > 0 {
				rests = nil // not before a lull: what comes now and then costs one wake-up
			}
			err := s.send(&batch, flushing)
			if errors.Is(err, errPutOut) {
				continue
			}
			if err != nil {
				s.broken.Store(true)
				if why, gone := s.gone(); gone {
					s.end(why)
				}
				s.end(cause{err: status.Error(codes.Unavailable, "the stream does not take frames any more")})
				return
			}
			continue
		}
		if flushing {
			return
		}
		select {
		case <-s.box.Wake():
		case <-s.flush:
		case <-s.lull:
			rests = s.rests
		case rests <- struct{}{}:
			rested = true
			return
		}
	}
}

func (s *Session) send(b *delivery.Batch, flushing bool) error {
	for _, g := range b.Gaps {
		if s.extended {
			if err := s.deliver(laggedFrame(g), flushing); err != nil {
				return err
			}
		}
	}
	for _, frame := range b.Frames {
		if err := s.deliver(frame, flushing); err != nil {
			return err
		}
		s.m.o.Tracer.Delivered(frame)
	}
	s.work.wrote()
	s.box.Written(b, s.m.running.Load())
	if s.box.Mode() == delivery.Auto {
		// What more bytes were written after than all windows hold is done at
		// once, so that a fast client does not wait for the clock.
		s.box.Settle(autoWindow, math.MinInt64, false)
	}
	if !flushing {
		for _, in := range b.Feed {
			s.m.o.Router.Feed(in)
		}
	}
	return nil
}

// errPutOut says that a session may deliver nothing more.
var errPutOut = errors.New("session: it is put out")

// deliver is write that looks at the credential first: a client that has kept
// the one before waiting gets nothing after the expiry. What is flushed are
// answers only.
func (s *Session) deliver(frame []byte, flushing bool) error {
	now := s.m.o.Now()
	if !flushing && s.expired(now) {
		return errPutOut
	}
	return s.writeAt(frame, now.UnixMilli())
}

func (s *Session) write(frame []byte) error { return s.writeAt(frame, s.m.o.Now().UnixMilli()) }

func (s *Session) writeAt(frame []byte, now int64) error {
	s.blockedAt.Store(now)
	if err := s.st.Send(frame); err != nil {
		return err // stays marked as blocked: nothing of it counts as taken
	}
	s.blockedAt.Store(0)
	s.lastSent.Store(now)
	return nil
}
