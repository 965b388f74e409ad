package rabbitmq

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/internal/streams"
)

const (
	// rpcTimeout bounds one question to the broker; one that gets no answer is
	// asked again on a new connection. RabbitMQ 4 says no to a user or a virtual
	// host only after three seconds of silence: less than that, and a typing
	// error looks like a broker that is not there.
	rpcTimeout = 3500 * time.Millisecond
	heartbeat  = 2 * time.Second // a broker that hangs is noticed after two to three of them
	stallLimit = 5 * time.Second // entries without any confirm for so long end their producer

	// openLimit bounds one attempt of Open: there are calls of the library that
	// would wait for ever. What an attempt has declared is there for the next.
	openLimit = 15 * time.Second

	// How long a Close waits for the library: a producer's or consumer's below
	// the second after which package streams leaves a driver's call behind.
	closeLimit       = 800 * time.Millisecond
	driverCloseLimit = 2 * time.Second
)

// Options say where the broker is and how streams are declared.
type Options struct {
	// URLs are rabbitmq-stream://user:password@host:port/vhost, or with the
	// scheme rabbitmq-stream+tls. One: every connection goes there. Several:
	// the nodes of one cluster, dialled by the addresses that they advertise.
	// Without user and password it is guest, without a port 5552.
	URLs []string
	// Streams is the name of each partition's stream.
	Streams []string

	// Retention, applied when a stream is declared: whole segments are removed
	// that are older than MaxAge (7 days by default) or in excess of MaxBytes
	// (20 GB by default). SegmentBytes is 500 MB by default.
	MaxAge       time.Duration
	MaxBytes     int64
	SegmentBytes int64

	// TLS is used with rabbitmq-stream+tls; nil trusts the system's roots. The
	// certificate must be for one of the hosts in URLs unless ServerName is set.
	TLS *tls.Config
	// Logger is slog.Default if nil.
	Logger *slog.Logger
	// Waiting, if not nil, is told instead of the log of each attempt of Open
	// that has failed and is made again.
	Waiting func(error)
}

const (
	defaultMaxAge       = 7 * 24 * time.Hour
	defaultMaxBytes     = 20_000_000_000
	defaultSegmentBytes = 500_000_000
)

// Driver is a [streams.Driver] on RabbitMQ Streams.
type Driver struct {
	opts      Options
	endpoints []endpoint
	tls       *tls.Config // nil without TLS
	log       *slog.Logger
	parts     []*partition
	stall     time.Duration

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	calls  chan struct{} // see maxCalls
	logins chan struct{} // see maxLogins
	first  atomic.Uint32 // index of the endpoint to try first: the last that answered

	mu     sync.Mutex
	closed bool
	open   map[io.Closer]struct{} // producers and consumers
	tasks  int                    // goroutines that run or close library objects
	idle   chan struct{}          // closed when closed and no task is left
}

var _ streams.Driver = (*Driver)(nil)

// Open connects to the broker and declares the streams that do not exist yet.
// It tries again until ctx ends, except after an error that trying again does
// not mend ([ErrAuthentication], [ErrAccess], [ErrTLS], [ErrConfig]).
func Open(ctx context.Context, opts Options) (*Driver, error) {
	d, err := newDriver(opts)
	if err != nil {
		return nil, err
	}
	pause := 100 * time.Millisecond
	for {
		attempt, cancel := context.WithTimeout(ctx, openLimit)
		err := d.declare(attempt)
		cancel()
		if err == nil {
			return d, nil
		}
		if refused := d.untrusted(ctx); refused != nil {
			err = refused
		}
		if permanent(err) {
			d.Close()
			return nil, err
		}
		if opts.Waiting != nil {
			opts.Waiting(err)
		} else {
			d.log.Warn("the broker is not ready, trying again", "error", err, "pause", pause)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
			pause = min(2*pause, 2*time.Second)
		case <-ctx.Done():
			timer.Stop()
			d.Close()
			return nil, err
		}
	}
}

func newDriver(opts Options) (*Driver, error) {
	if len(opts.URLs) == 0 {
		return nil, fmt.Errorf("%w: no URL", ErrConfig)
	}
	if len(opts.Streams) == 0 {
		return nil, fmt.Errorf("%w: no stream", ErrConfig)
	}
	if opts.MaxAge < 0 || opts.MaxBytes < 0 || opts.SegmentBytes < 0 {
		return nil, fmt.Errorf("%w: negative retention", ErrConfig)
	}
	if opts.MaxAge == 0 {
		opts.MaxAge = defaultMaxAge
	}
	if opts.MaxAge < time.Second {
		return nil, fmt.Errorf("%w: retention in age is below 1 s", ErrConfig)
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = defaultMaxBytes
	}
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = defaultSegmentBytes
	}
	d := &Driver{
		opts:   opts,
		log:    opts.Logger,
		stall:  stallLimit,
		calls:  make(chan struct{}, maxCalls),
		logins: make(chan struct{}, maxLogins),
		open:   make(map[io.Closer]struct{}),
		idle:   make(chan struct{}),
	}
	if d.log == nil {
		d.log = slog.Default()
	}
	var err error
	if d.endpoints, err = parseEndpoints(opts.URLs); err != nil {
		return nil, err
	}
	if d.endpoints[0].tls {
		d.tls = tlsConfig(opts.TLS, d.endpoints)
	}
	seen := make(map[string]bool)
	for _, name := range opts.Streams {
		if strings.TrimSpace(name) == "" || len(name) > 255 || seen[name] {
			return nil, fmt.Errorf("%w: stream name %q is empty, too long or there twice", ErrConfig, name)
		}
		seen[name] = true
		d.parts = append(d.parts, &partition{name: name})
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	libraryLog.Store(d.log)
	return d, nil
}

// Partitions implements [streams.Driver].
func (d *Driver) Partitions() int { return len(d.parts) }

// partition returns the stream of a partition.
func (d *Driver) partition(n int) (*partition, error) {
	if n < 0 || n >= len(d.parts) {
		return nil, fmt.Errorf("rabbitmq: no partition %d: there are %d", n, len(d.parts))
	}
	return d.parts[n], nil
}

// begin announces a goroutine to Close. It fails when the driver is closed.
func (d *Driver) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.tasks++
	return true
}

// finish is the end of a goroutine that began.
func (d *Driver) finish() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tasks--
	if d.closed && d.tasks == 0 {
		close(d.idle)
	}
}

// keep registers what Close has to close. It fails when the driver is closed.
func (d *Driver) keep(c io.Closer) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	d.open[c] = struct{}{}
	return true
}

func (d *Driver) forget(c io.Closer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, c)
}

// Close implements [streams.Driver]. It returns within about three seconds, also
// when the broker hangs; connections that do not end by then are left to end
// when the broker or the network does.
func (d *Driver) Close() error {
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return nil
	}
	d.closed = true
	if d.tasks == 0 {
		close(d.idle)
	}
	open := make([]io.Closer, 0, len(d.open))
	for c := range d.open {
		open = append(open, c)
	}
	d.mu.Unlock()
	d.cancel()

	var closing sync.WaitGroup
	for _, c := range open {
		closing.Go(func() { c.Close() })
	}
	closing.Wait()
	waitFor(d.idle, driverCloseLimit)
	return nil
}

// waitFor waits for a channel to be closed, at most so long.
func waitFor(done <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
