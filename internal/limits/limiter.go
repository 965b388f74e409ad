package limits

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"hash/maphash"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
)

// Options configure a [Limiter].
type Options struct {
	// Identity, Source and Workspace are the rates of each.
	Identity, Source, Workspace Rate
	// SourceSessions and WorkspaceSessions are how many sessions one source and
	// one workspace may have on all gateways together; 0 is no limit.
	SourceSessions, WorkspaceSessions int
	// Counters are shared with the other gateways; nil: there are none.
	Counters presence.Counters
	// Gateways says how many gateways there are, for what begins while the
	// counters cannot be asked; nil: one.
	Gateways func() int
	Logger   *slog.Logger
	// Now is the clock; default [time.Now].
	Now func() time.Time

	manual bool // for tests: rounds are made when they are called for
}

// Limited reports whether there is anything to limit.
func (o Options) Limited() bool {
	return !o.Identity.none() || !o.Source.none() || !o.Workspace.none() || o.SourceSessions > 0 || o.WorkspaceSessions > 0
}

const (
	// roundEvery is how often others are told of those who send much; changes
	// of demand go at once, minRound after the last round at the earliest.
	roundEvery = 100 * time.Millisecond
	minRound   = 10 * time.Millisecond
	// tellPart is the part of a second's rate from which on use counts as much,
	// tellAtLeast how late little use is told of.
	tellPart    = 0.02
	tellAtLeast = time.Second
	// renewEvery is how often a gateway says that it has a key open on which
	// nothing is sent; below [presence.CounterKept].
	renewEvery = 10 * time.Second
	// openTimeout is how long a session that begins waits to hear what others
	// have left of its limits.
	openTimeout = 500 * time.Millisecond
	// roundTimeout bounds one round.
	roundTimeout = time.Second

	// maxIdle bounds the buckets that nobody uses and that are not full. Past
	// it one is folded into the coarse ones, of which there are coarse: a name
	// that begins anew begins with no more than was left in its coarse bucket,
	// so nobody gets rid of what it has used by bringing in many others.
	maxIdle = 1 << 16
	coarse  = 1 << 10
)

// Limiter keeps the limits of a gateway. All methods are safe for concurrent
// use. It is as large as the number of sessions, and of those that have ended
// within the last seconds and had used much.
type Limiter struct {
	o       Options
	log     *slog.Logger
	maxIdle int // the constant, but in tests
	refused [scopes]atomic.Uint64

	wake   chan struct{} // capacity 1: a round is wanted soon
	begin  chan struct{} // capacity 1: a round is wanted at once
	stop   chan struct{}
	once   sync.Once
	wg     sync.WaitGroup
	failed bool // the last round did; of the goroutine of rounds

	mu      sync.Mutex
	buckets map[bucketName]*bucket
	idle    map[*bucket]struct{} // nobody uses them, and they are not full
	shared  []*bucket            // in use, of a kind that several gateways have open
	at      int                  // of shared: whose turn it is
	folded  [coarse]debt
	opening []opening

	tmu     sync.Mutex
	touched []*bucket
}

type bucketName struct {
	scope Scope
	name  string
}

// debt is what is missing in a coarse bucket: of each measure, in seconds of its
// rate.
type debt struct {
	at      time.Time
	missing [units]float64
}

// opening is who waits for the first answer about some buckets.
type opening struct {
	buckets []*bucket
	done    chan struct{}
}

// New returns a limiter, which must be closed; nil if there is nothing to limit.
func New(o Options) *Limiter {
	if !o.Limited() {
		return nil
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Gateways == nil {
		o.Gateways = func() int { return 1 }
	}
	l := &Limiter{
		o: o, log: o.Logger, maxIdle: maxIdle, wake: make(chan struct{}, 1), begin: make(chan struct{}, 1), stop: make(chan struct{}),
		buckets: map[bucketName]*bucket{}, idle: map[*bucket]struct{}{},
	}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if !o.manual {
		l.wg.Go(l.run)
	}
	return l
}

// Close stops the limiter. All accounts should be closed; a nil Limiter needs
// none.
func (l *Limiter) Close() {
	if l == nil {
		return
	}
	l.once.Do(func() { close(l.stop) })
	l.wg.Wait()
}

// Refused returns how many sends each [Scope] has refused.
func (l *Limiter) Refused() (counts [scopes]uint64) {
	if l == nil {
		return counts
	}
	for i := range l.refused {
		counts[i] = l.refused[i].Load()
	}
	return counts
}

// Len returns how many buckets are kept.
func (l *Limiter) Len() int {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.buckets)
}

// Party is whose limits a session comes under.
type Party struct {
	// Identity is the identity string, Source names the credential or user,
	// Workspace is the session's own, empty for one without.
	Identity, Source, Workspace string
	// Resumed lets the session in however many there are: it takes the place of
	// one that may not have been counted out yet.
	Resumed bool
}

// SessionsError says that there are too many sessions.
type SessionsError struct {
	Scope Scope // [Source] or [Workspace]
	Limit int
}

func (e *SessionsError) Error() string {
	if e.Scope == Workspace {
		return "the workspace has as many sessions as it may have"
	}
	return "the credential or user has as many sessions as it may have"
}

// ErrClosed is returned by a limiter that was closed.
var ErrClosed = errors.New("limits: closed")

// Open makes the account of a session that begins. With other gateways it asks
// them first what is left, and waits for that a moment; if they do not answer,
// the session begins with an even part. It returns a [*SessionsError] if there
// are too many sessions. A nil Limiter returns a nil Account.
func (l *Limiter) Open(ctx context.Context, p Party) (*Account, error) {
	if l == nil {
		return nil, nil
	}
	a := &Account{l: l, own: p.Workspace}
	var ask []*bucket
	l.mu.Lock()
	hold := func(scope Scope, name string, wanted bool) *bucket {
		if name == "" || !wanted {
			return nil
		}
		b := l.use(scope, name)
		b.holders++
		if l.o.Counters != nil && (scope != Identity || b.toldAt.IsZero()) {
			ask = append(ask, b)
		}
		return b
	}
	a.identity = hold(Identity, p.Identity, !l.o.Identity.none())
	a.source = hold(Source, p.Source, !l.o.Source.none() || l.o.SourceSessions > 0)
	a.workspace = hold(Workspace, p.Workspace, !l.o.Workspace.none() || l.o.WorkspaceSessions > 0)
	var done chan struct{}
	if len(ask) > 0 {
		done = make(chan struct{})
		l.opening = append(l.opening, opening{ask, done})
	}
	l.mu.Unlock()
	if done != nil {
		if err := l.await(ctx, done); err != nil {
			a.Close()
			return nil, err
		}
	}
	if err := l.crowded(a); err != nil && !p.Resumed {
		a.Close()
		return nil, err
	}
	return a, nil
}

// await waits until others have answered, or for long enough.
func (l *Limiter) await(ctx context.Context, done chan struct{}) error {
	if l.o.manual {
		l.round(l.o.Now())
		return nil
	}
	select {
	case l.begin <- struct{}{}:
	default:
	}
	limit := time.NewTimer(openTimeout)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-l.stop:
		return ErrClosed
	}
	return nil
}

// crowded returns an error if an account is one too many.
func (l *Limiter) crowded(a *Account) error {
	if err := l.full(a.source, l.o.SourceSessions); err != nil {
		return err
	}
	return l.full(a.workspace, l.o.WorkspaceSessions)
}

// full returns an error if a bucket has more sessions than the limit.
func (l *Limiter) full(b *bucket, limit int) error {
	if b == nil || limit <= 0 {
		return nil
	}
	l.mu.Lock()
	own := b.holders
	l.mu.Unlock()
	b.mu.Lock()
	others := b.others
	b.mu.Unlock()
	if own+others > limit {
		return &SessionsError{b.scope, limit}
	}
	return nil
}

// use returns the bucket of a name for one more account. The lock is held, here
// and below.
func (l *Limiter) use(scope Scope, name string) *bucket {
	b := l.buckets[bucketName{scope, name}]
	if b == nil {
		b = l.newBucket(scope, name)
		l.buckets[bucketName{scope, name}] = b
	}
	if b.refs == 0 {
		delete(l.idle, b)
		b.leaving = false
		if scope != Identity && l.o.Counters != nil {
			b.place = len(l.shared)
			l.shared = append(l.shared, b)
		}
	}
	b.refs++
	return b
}

func (l *Limiter) newBucket(scope Scope, name string) *bucket {
	b := &bucket{scope: scope, name: name, place: -1, at: l.o.Now()}
	if l.o.Counters != nil {
		b.key = key(scope, name)
	}
	rate := [scopes]Rate{l.o.Identity, l.o.Source, l.o.Workspace}[scope]
	part := 1.0
	if l.o.Counters != nil {
		part = 1 / float64(max(l.o.Gateways(), 1)) // until the others have answered
	}
	missing := l.missing(scope, name, b.at)
	for i := range b.meters {
		m := &b.meters[i]
		m.rate = rate.of(Unit(i))
		m.burst, m.share = m.rate*burstSeconds, part
		m.tokens = m.burst*part - missing[i]*m.rate
	}
	return b
}

// key is the name of a bucket among the counters: of one length, and telling
// nothing.
func key(scope Scope, name string) string {
	sum := sha256.Sum256([]byte(name))
	return scopeNames[scope][:1] + base64.RawURLEncoding.EncodeToString(sum[:16])
}

var seed = maphash.MakeSeed()

// slot is the coarse bucket of a name.
func slot(scope Scope, name string) int {
	return int(maphash.Comparable(seed, bucketName{scope, name}) % coarse)
}

// leave lets go of a bucket for one account, and so many sessions.
func (l *Limiter) leave(b *bucket, sessions int) {
	b.refs--
	b.holders -= sessions
	if b.refs > 0 {
		if sessions > 0 && b.scope != Identity && l.o.Counters != nil {
			l.recount(b)
		}
		return
	}
	if b.place >= 0 {
		last := l.shared[len(l.shared)-1]
		l.shared[b.place], last.place = last, b.place
		l.shared = l.shared[:len(l.shared)-1]
		b.place = -1
	}
	b.mu.Lock()
	full, unknown := b.full(l.o.Now()), b.toldAt.IsZero()
	touch := l.o.Counters != nil && !unknown && !b.touched
	b.touched = b.touched || touch
	b.mu.Unlock()
	if l.o.Counters != nil && !unknown {
		b.leaving = true // the next round tells
	} else if full {
		l.forget(b)
		return
	}
	if touch {
		l.touch(b)
	}
	if len(l.idle) >= l.maxIdle {
		for other := range l.idle {
			l.fold(other)
			break
		}
	}
	l.idle[b] = struct{}{}
}

// recount has the others told with the next round that a session has left.
func (l *Limiter) recount(b *bucket) {
	b.mu.Lock()
	touch := !b.touched
	b.touched, b.starved = true, true
	b.mu.Unlock()
	if touch {
		l.touch(b)
	}
}

// fold forgets a bucket that nobody uses, all but what is missing in it.
func (l *Limiter) fold(b *bucket) {
	l.forget(b)
	now := l.o.Now()
	missing := l.missing(b.scope, b.name, now)
	b.mu.Lock()
	b.fill(now)
	for i := range b.meters {
		if m := &b.meters[i]; m.rate > 0 {
			missing[i] = max(missing[i], (m.burst*m.share-m.tokens)/m.rate)
		}
	}
	b.mu.Unlock()
	l.folded[slot(b.scope, b.name)] = debt{now, missing}
}

// missing is what a name begins without.
func (l *Limiter) missing(scope Scope, name string, now time.Time) (missing [units]float64) {
	d := &l.folded[slot(scope, name)]
	if d.at.IsZero() {
		return missing
	}
	for i := range missing {
		missing[i] = max(0, d.missing[i]-now.Sub(d.at).Seconds())
	}
	return missing
}

// sweep forgets buckets that nobody uses and that are full again.
func (l *Limiter) sweep(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for b := range l.idle {
		b.mu.Lock()
		full := b.full(now)
		b.mu.Unlock()
		if full && !b.leaving {
			l.forget(b)
		}
	}
}

// forget drops a bucket that nobody uses.
func (l *Limiter) forget(b *bucket) {
	b.leaving = false
	delete(l.idle, b)
	if name := (bucketName{b.scope, b.name}); l.buckets[name] == b {
		delete(l.buckets, name)
	}
}
