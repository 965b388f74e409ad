package session

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/audit"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/kv"
	"github.com/aether-gateway/gateway/internal/limits"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/router"
	"github.com/aether-gateway/gateway/internal/tracing"
	"github.com/aether-gateway/gateway/internal/where"
)

// Stream is a client's connection. Recv is called by one goroutine, Send by
// another. When Serve has returned, both fail.
type Stream interface {
	Context() context.Context
	// Recv returns the next frame; a [MalformedError] does not end the stream.
	Recv() (*aetherv1.UpstreamMessage, error)
	// Send sends an encoded aether.v1.DownstreamMessage, which may be reused
	// when it has returned.
	Send(frame []byte) error
	// Lost reports whether the connection below the stream is gone, in
	// contrast to a stream that was cancelled.
	Lost() bool
	// Authorization returns the values that came beside the stream.
	Authorization() []string
	// Transport is what is known of the connection itself.
	Transport() auth.Transport
	// Peer names the other end, for logs.
	Peer() string
}

// Options configure a [Manager]. Router, Presence and Verifier are required.
type Options struct {
	Router   *router.Router
	Presence presence.Gateway // to be started with the manager as its handler
	Verifier *auth.Verifier
	// Failures slows addresses whose credentials fail; nil slows none.
	Failures *auth.Failures
	// Revocations says which credentials count no more. Nil: none are revoked.
	Revocations Revocations
	// Limits are what senders may send, and how many sessions there may be; nil:
	// nothing is limited.
	Limits *limits.Limiter
	Logger *slog.Logger
	Now    func() time.Time
	// Audit records who connects and who is refused; nil records nothing.
	Audit *audit.Recorder
	// Tasks are the tasks of clients; nil: there are none.
	Tasks Tasks
	// Orchestration starts those who are not there; nil: nobody is started.
	Orchestration Orchestration
	// Workers knows who works on which task; nil: there are no tasks.
	Workers Workers
	// Tracer makes spans of messages; nil: none are made.
	Tracer *tracing.Tracer
	// Finder answers where a message is; nil: that is not supported.
	Finder *where.Finder
	// Grants keeps who may act for whom; nil: nobody does.
	Grants Grants
	// KV keeps keys and checkpoints; nil: they are not supported.
	KV *kv.Service
	// Version is what ConnectionAck says.
	Version string

	// AdmissionRate is how many new sessions per second are let in; 0 is no
	// limit.
	AdmissionRate int
	// InitTimeout is how long a client may take for its first frame; default
	// 10 s.
	InitTimeout time.Duration
	// WriteTimeout ends a stream that has taken nothing for so long; default
	// 60 s.
	WriteTimeout time.Duration
	// HeartbeatInterval is the longest silence of the gateway; default 15 s.
	HeartbeatInterval time.Duration
	// Keepalive is how long the transport needs to find a dead peer: its
	// keepalive time and timeout together; default 20 s (delivery rule A).
	Keepalive time.Duration
	// MaxUnacked is the window of a client that names none, default 256;
	// MaxWindow the largest that a client gets, default 10,000.
	MaxUnacked, MaxWindow int
	// QueueBytes is how much waits for a session in each data lane; default
	// 1 MiB.
	QueueBytes int
}

func (o Options) withDefaults() Options {
	setDefault(&o.Now, time.Now, o.Now == nil)
	setDefault(&o.Logger, slog.New(slog.DiscardHandler), o.Logger == nil)
	setDefault(&o.InitTimeout, 10*time.Second, o.InitTimeout <= 0)
	setDefault(&o.WriteTimeout, time.Minute, o.WriteTimeout <= 0)
	setDefault(&o.HeartbeatInterval, 15*time.Second, o.HeartbeatInterval <= 0)
	setDefault(&o.Keepalive, 20*time.Second, o.Keepalive <= 0)
	setDefault(&o.MaxUnacked, 256, o.MaxUnacked <= 0)
	setDefault(&o.MaxWindow, 10_000, o.MaxWindow <= 0)
	return o
}

func setDefault[T any](field *T, value T, unset bool) {
	if unset {
		*field = value
	}
}

// Manager holds the sessions of this gateway. All methods are safe for
// concurrent use.
type Manager struct {
	o     Options
	stats Stats
	entry *admission
	// running is how long the process has run, in ms: a process that was
	// stopped does not take the pause for time that it watched (delivery
	// rule A).
	running  atomic.Int64
	once     sync.Once
	stop     chan struct{}
	wg       sync.WaitGroup
	refusals refusals
	looking  chan struct{} // one of each question about a message that is being answered
	working  chan struct{} // one of each job that is being done

	mu       sync.Mutex
	sessions map[string]*Session
	draining bool
	empty    chan struct{} // closed when the last session has left a draining manager
}

// Stats are the manager's counters since it started.
type Stats struct {
	Connects, Refused, Ended, SlowReaders atomic.Uint64
	// TurnedAway counts connections beyond the admission rate.
	TurnedAway atomic.Uint64
	// Slowed counts connections that were told to come back later because too
	// many credentials from their address have failed.
	Slowed atomic.Uint64
	// Crowded counts connections of workspaces and credentials that had too many
	// sessions.
	Crowded atomic.Uint64
	// Resumed counts sessions that went on where another one was, TakenOver
	// those that were asked to yield to such a one, Fenced and Superseded those
	// that lost their lease without being asked.
	Resumed, TakenOver, Fenced, Superseded atomic.Uint64
	// Switched counts changes of workspace.
	Switched atomic.Uint64
	// Reauthenticated counts credentials that took the place of older ones,
	// ReauthenticationsRefused those that did not. CredentialsExpired and
	// CredentialsRevoked count the sessions that ended for that.
	Reauthenticated, ReauthenticationsRefused, CredentialsExpired, CredentialsRevoked atomic.Uint64
}

// NewManager returns a manager, which must be closed.
func NewManager(o Options) *Manager {
	o = o.withDefaults()
	m := &Manager{o: o, entry: newAdmission(o.AdmissionRate, o.Now), stop: make(chan struct{}), looking: make(chan struct{}, maxLooking), working: make(chan struct{}, maxWorking), refusals: newRefusals(), sessions: map[string]*Session{}}
	o.Router.OnLoss(m.lose)
	m.wg.Go(m.watch)
	return m
}

// Stats returns the counters.
func (m *Manager) Stats() *Stats { return &m.stats }

// Count returns how many sessions there are.
func (m *Manager) Count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.sessions)
}

const (
	watchInterval = time.Second
	// watchSlack is how late a tick may come and still count in full.
	watchSlack = 2 * time.Second
)

// watch looks after all sessions: silence, blocked writes, expiry, and what
// counts as done in Auto mode.
func (m *Manager) watch() {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	last := time.Now()
	for {
		select {
		case <-m.stop:
			return
		case <-tick.C:
		}
		now := time.Now()
		m.running.Add(min(now.Sub(last), watchSlack).Milliseconds())
		last = now
		for _, s := range m.all() {
			s.check()
		}
	}
}

func (m *Manager) all() []*Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]*Session, 0, len(m.sessions))
	for _, s := range m.sessions {
		list = append(list, s)
	}
	return list
}

// draining is the status of streams that end, or do not begin, because the
// gateway shuts down.
func draining() error {
	return unavailable(reconnectWithin/2, "the gateway is shutting down; connect again")
}

// add makes a session known. It fails while the gateway shuts down.
func (m *Manager) add(s *Session) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.draining {
		return draining()
	}
	m.sessions[s.id] = s
	return nil
}

func (m *Manager) remove(s *Session) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions[s.id] == s {
		delete(m.sessions, s.id)
		m.stats.Ended.Add(1)
		if m.o.Grants != nil {
			m.o.Grants.SessionEnded(s.id)
		}
	}
	if m.draining && len(m.sessions) == 0 && m.empty != nil {
		close(m.empty)
		m.empty = nil
	}
}

func (m *Manager) session(id string) *Session {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sessions[id]
}

func (m *Manager) isDraining() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.draining
}

// reconnectWithin spreads the clients of a gateway that shuts down.
const reconnectWithin = 2 * time.Second

// Drain tells every client to connect again later, ends all sessions, and
// waits for them until ctx ends. New ones are refused from now on.
func (m *Manager) Drain(ctx context.Context) error {
	m.mu.Lock()
	m.draining = true
	var empty chan struct{}
	if len(m.sessions) > 0 {
		if m.empty == nil {
			m.empty = make(chan struct{})
		}
		empty = m.empty
	}
	m.mu.Unlock()
	for _, s := range m.all() {
		s.urgent(signalFrame(aetherv1.Signal_SIGNAL_TYPE_GRACEFUL_DISCONNECT, "the gateway is shutting down", "DRAINING", rand.N(reconnectWithin)))
		s.end(cause{err: draining(), flush: true, receipts: true})
	}
	if empty == nil {
		return nil
	}
	select {
	case <-empty:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close stops the manager. All sessions must have ended, see [Manager.Drain];
// it waits for what they left running until ctx ends.
func (m *Manager) Close(ctx context.Context) error {
	m.once.Do(func() { close(m.stop) })
	done := make(chan struct{})
	go func() {
		m.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
