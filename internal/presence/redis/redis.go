package redis

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/aether-gateway/gateway/internal/presence"
)

// Options configure a [Presence]. URL and Instance are required.
type Options struct {
	// URL is redis://[user:password@]host:port[/db], or rediss://.
	URL string
	// Instance is the configured id of this gateway, which no other live one
	// may have.
	Instance string
	// ID is unique to this process, letters and digits; default: drawn.
	ID     string
	Logger *slog.Logger
	// PoolSize is how many connections there are at most, beside the one that
	// listens; default 8.
	PoolSize int

	// Beat, FenceAfter and TTL are those of package presence. All gateways
	// must have the same; only tests change them.
	Beat, FenceAfter, TTL time.Duration
	// ScanInterval is how often the directory is compared with Redis in full,
	// beside what changes tell; default one minute.
	ScanInterval time.Duration

	// For tests: the clocks of this gateway and of the server, and beats that
	// come when they are called for.
	now       func() time.Time
	serverNow func() int64
	manual    bool
}

const (
	defaultPool = 8
	defaultScan = time.Minute
	// callTimeout bounds one call; it is below what fencing leaves.
	callTimeout = time.Second
)

// Presence is a [presence.Gateway] on Redis.
type Presence struct {
	o      Options
	client *goredis.Client
	pulse  *goredis.Client // of the heartbeat alone
	base   string          // of all keys and channels
	self   presence.Instance
	dir    *directory
	log    *slog.Logger

	inbox presence.Dispatcher // of notices
	out   sender

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup
	kick   chan struct{} // wakes the heartbeat; one waits at most
	rescan chan struct{} // wakes the scan; one waits at most
	yields chan struct{} // bounds the sessions that are asked to yield at once

	mu          sync.RWMutex
	handler     presence.Handler
	started     bool
	closed      bool
	incarnation string
	graceUntil  time.Time // leases are not handed out before
	confirmed   time.Time // when the last confirmed heartbeat was sent; zero: none
	down        error     // why the last heartbeat failed; nil: it did not
	fence       *presence.Fence
	own         map[string]*held // by session id
	names       map[string]*held // by name
	wild        map[string]*held // by the text before the star
	pending     map[string]bool  // sessions whose claim is on its way; true: lost already
	drops       map[string]string
	confirms    map[string]uint64
	lostSeen    []string
	asked       map[string]chan yielded // by request id
	stats       Stats
}

// held is a lease of this gateway. The mutex guards it.
type held struct {
	lease     presence.Lease
	preds     []string
	watermark []byte
	dirty     bool   // the watermark is newer than the record's
	in        string // the incarnation that knows the lease
	// A session that was asked to yield keeps its names until they are taken
	// or this time has passed.
	yieldUntil time.Time
	handed     bool // it has stopped and handed over its watermark
	released   bool
}

// yielding reports whether somebody is about to take the lease.
func (h *held) yielding(now time.Time) bool { return now.Before(h.yieldUntil) }

var _ presence.Gateway = (*Presence)(nil)

func init() { goredis.SetLogger(silent{}) }

// silent keeps the client library from writing to the standard error output;
// what matters is in the errors.
type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// CheckURL returns why New would refuse a URL. The error does not repeat it.
func CheckURL(url string) error {
	_, err := parseURL(url)
	return err
}

func parseURL(url string) (*goredis.Options, error) {
	options, err := goredis.ParseURL(url)
	if err != nil {
		// The library's error repeats the URL, which may hold a password.
		return nil, errors.New("presence: the Redis URL is not valid: it should be redis://[user:password@]host:port[/db]")
	}
	return options, nil
}

// New returns a presence that has not begun yet. It does not connect.
func New(o Options) (*Presence, error) {
	options, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	if o.Instance == "" {
		return nil, errors.New("presence: the instance id is missing")
	}
	setDefault(&o.ID, newID(), o.ID == "")
	if strings.ContainsFunc(o.ID, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		return nil, errors.New("presence: the id of the process is not of letters and digits")
	}
	setDefault(&o.Logger, slog.New(slog.NewTextHandler(io.Discard, nil)), o.Logger == nil)
	setDefault(&o.PoolSize, defaultPool, o.PoolSize <= 0)
	setDefault(&o.Beat, presence.Beat, o.Beat <= 0)
	setDefault(&o.FenceAfter, presence.FenceAfter, o.FenceAfter <= 0)
	setDefault(&o.TTL, presence.TTL, o.TTL <= 0)
	setDefault(&o.ScanInterval, defaultScan, o.ScanInterval <= 0)
	setDefault(&o.now, time.Now, o.now == nil)
	options.PoolSize, options.MaxActiveConns, options.MinIdleConns = o.PoolSize, o.PoolSize+2, 0
	// A script that was cut off may have run: it is not for the library to
	// run it again.
	options.MaxRetries = -1
	options.DialerRetries = 1
	options.DialTimeout, options.ReadTimeout, options.WriteTimeout, options.PoolTimeout = callTimeout, callTimeout, callTimeout, callTimeout
	options.ContextTimeoutEnabled = true
	options.DisableIdentity = true
	options.Protocol = 2
	options.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	p := &Presence{
		o: o, client: goredis.NewClient(options), log: o.Logger,
		// Channels are one for all databases of a server, so they are named
		// after theirs.
		base: "{aether}:" + strconv.Itoa(options.DB) + ":",
		self: presence.Instance{ID: o.ID, Name: o.Instance},
		dir:  newDirectory(o.now),
		kick: make(chan struct{}, 1), rescan: make(chan struct{}, 1), yields: make(chan struct{}, maxYields),
		own: map[string]*held{}, names: map[string]*held{}, wild: map[string]*held{}, pending: map[string]bool{},
		drops: map[string]string{}, confirms: map[string]uint64{}, asked: map[string]chan yielded{},
	}
	pulse := *options
	pulse.PoolSize, pulse.MaxActiveConns = 1, 1
	p.pulse = goredis.NewClient(&pulse)
	p.out.p = p
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

func setDefault[T any](field *T, value T, unset bool) {
	if unset {
		*field = value
	}
}

func (p *Presence) serverNow() string {
	if p.o.serverNow == nil {
		return ""
	}
	return strconv.FormatInt(p.o.serverNow(), 10)
}

// Start implements [presence.Gateway]. If Redis cannot be reached it returns
// nil and goes on trying.
func (p *Presence) Start(ctx context.Context, h presence.Handler) error {
	p.mu.Lock()
	p.handler, p.started = h, true
	p.mu.Unlock()
	if err := p.enter(ctx); err != nil {
		return err
	}
	p.wg.Go(p.listen)
	p.wg.Go(p.scans)
	if !p.o.manual {
		p.wg.Go(p.beats)
		p.wg.Go(p.watch)
	}
	return nil
}

// enter makes the first heartbeat. One that finds another instance under the
// same name waits until that has shown that it lives, or is dead: this one may
// be what was started after its crash.
func (p *Presence) enter(ctx context.Context) error {
	var seen string
	for {
		err := p.beat(ctx)
		var double *doubleError
		if !errors.As(err, &double) {
			return nil
		}
		if seen != "" && double.at != seen {
			return presence.ErrInstanceInUse
		}
		seen = double.at
		wait := time.NewTimer(p.o.Beat + p.o.Beat/2)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return presence.ErrInstanceInUse
		case <-p.ctx.Done():
			wait.Stop()
			return presence.ErrClosed
		}
	}
}

// doubleError is [presence.ErrInstanceInUse] with the other's last heartbeat.
type doubleError struct{ at string }

func (e *doubleError) Error() string { return presence.ErrInstanceInUse.Error() }

func (e *doubleError) Is(target error) bool { return target == presence.ErrInstanceInUse }

// Status implements [presence.Gateway].
func (p *Presence) Status() error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if err := p.ready(); err != nil {
		return err
	}
	if left := p.graceUntil.Sub(p.o.now()); left > 0 {
		return &presence.UnavailableError{Reason: "Redis is new; gateways register what they hold", RetryAfter: left}
	}
	return nil
}

// ready returns why nothing can be asked of Redis. The mutex is held.
func (p *Presence) ready() error {
	switch {
	case p.closed:
		return presence.ErrClosed
	case !p.started:
		return &presence.UnavailableError{Reason: "presence has not been started"}
	case errors.Is(p.down, presence.ErrInstanceInUse):
		return fmt.Errorf("%w: %w", &presence.UnavailableError{Reason: "the instance id is in use"}, presence.ErrInstanceInUse)
	case p.down != nil:
		var fault *faultError
		return &presence.UnavailableError{
			Reason: p.down.Error(), RetryAfter: p.o.Beat, Refused: errors.As(p.down, &fault) && fault.refused,
		}
	case p.fence == nil || p.fence.Fenced():
		return &presence.UnavailableError{Reason: "no heartbeat was confirmed lately", RetryAfter: p.o.Beat}
	}
	return nil
}

// Fence implements [presence.Gateway]. It is nil before the first heartbeat
// was confirmed; there are no leases then.
func (p *Presence) Fence() *presence.Fence {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.fence
}

// Close implements [presence.Gateway].
func (p *Presence) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil
	}
	p.closed = true
	leases := make([]any, 0, 2*len(p.own))
	for _, h := range p.own {
		h.lease.Hold.Drop()
		leases = append(leases, h.lease.SessionID, decimal(h.lease.Epoch))
	}
	clear(p.own)
	clear(p.names)
	clear(p.wild)
	incarnation, down := p.incarnation, p.down
	p.mu.Unlock()
	p.cancel()
	p.wg.Wait()
	p.out.close()
	p.inbox.Close()
	var err error
	if down == nil && incarnation != "" {
		err = p.leave(ctx, incarnation, leases)
	}
	return errors.Join(err, p.client.Close(), p.pulse.Close())
}

// leave takes this instance out of Redis, so that nobody has to wait for it to
// be dead.
func (p *Presence) leave(ctx context.Context, incarnation string, leases []any) error {
	for len(leases) > 0 {
		n := min(len(leases), 2*chunk)
		if _, err := p.run(ctx, releaseScript, incarnation, leases[:n]...); err != nil {
			return p.fault(err)
		}
		leases = leases[n:]
	}
	if _, err := p.run(ctx, leaveScript, incarnation); err != nil {
		return p.fault(err)
	}
	return nil
}
