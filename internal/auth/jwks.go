package auth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The defaults of JWKSOptions, and what else bounds the fetching of keys.
const (
	DefaultJWKSRefresh  = 5 * time.Minute
	DefaultJWKSMaxStale = time.Hour

	// unknownEvery is how often an unknown kid may cause a fetch.
	unknownEvery = 30 * time.Second
	fetchTimeout = 5 * time.Second // of the whole answer
	maxJWKS      = 256 << 10       // bytes of it, decompressed
	maxPins      = 256             // kids whose algorithm is remembered
)

// JWKSOptions configure a JWKS. URL is required.
type JWKSOptions struct {
	// URL is where the keys are; https, or http on this machine.
	URL string
	// Issuer is the only one whose tokens these keys are good for; "" is the
	// verifier's.
	Issuer string
	// Refresh is how often the keys are fetched; 0 means DefaultJWKSRefresh.
	// A key that is no longer published is accepted for so long at most.
	Refresh time.Duration
	// MaxStale is how long keys are accepted when they cannot be fetched any
	// more; 0 means DefaultJWKSMaxStale.
	MaxStale time.Duration
	// TLS replaces the system's roots; nil keeps them.
	TLS *tls.Config
	// Logger is told of changes and failures; nil tells nobody.
	Logger *slog.Logger
	// Clock tells the time; nil means time.Now.
	Clock func() time.Time
}

// JWKS are the keys that another server publishes as a JSON Web Key Set. It
// begins without any; [JWKS.Watch] fetches them. It is safe for concurrent use.
//
// A kid keeps the algorithm with which it was seen first: a key that comes under
// it with another one is not accepted. An answer without a usable key, like one
// that is slow, too large or no answer at all, changes nothing.
type JWKS struct {
	o    JWKSOptions
	host string // for logs and errors: the rest of the URL may hold a secret
	http *http.Client
	// changed is told of other keys; it may be nil.
	changed func()
	set     atomic.Pointer[fetched]

	mu      sync.Mutex
	flight  chan struct{} // closed when the fetch under way has ended; nil: none is
	asked   time.Time     // when an unknown kid last caused a fetch
	err     error         // why the last fetch failed; nil if it did not
	problem string        // with the published set, as it was logged last
	pins    map[string]pin
}

type fetched struct {
	keys *Keys
	at   time.Time
}

// pin is the algorithm of a kid, and when that was last published.
type pin struct {
	alg string
	at  time.Time
}

var _ KeySource = (*JWKS)(nil)

// NewJWKS checks the options. It fetches nothing yet.
func NewJWKS(o JWKSOptions) (*JWKS, error) {
	u, err := url.Parse(o.URL)
	switch {
	case err != nil || u.Host == "":
		return nil, errors.New("it is no URL such as https://idp.example/keys")
	case u.User != nil:
		return nil, errors.New("it must hold no user or password")
	case u.Scheme != "https" && !(u.Scheme == "http" && isLoopback(u.Hostname())):
		return nil, errors.New("it must begin with https://; http:// is for this machine only, since whoever can change the answer can make credentials")
	}
	setDefault(&o.Refresh, DefaultJWKSRefresh, o.Refresh <= 0)
	setDefault(&o.MaxStale, DefaultJWKSMaxStale, o.MaxStale <= 0)
	setDefault(&o.Logger, slog.New(slog.DiscardHandler), o.Logger == nil)
	setDefault(&o.Clock, time.Now, o.Clock == nil)
	return &JWKS{o: o, host: u.Host, pins: map[string]pin{}, http: &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: o.TLS, ForceAttemptHTTP2: true,
			// One fetch in minutes: an idle connection would only grow old.
			DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10, TLSHandshakeTimeout: fetchTimeout,
		},
		// Where the keys are is the operator's word alone.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func setDefault[T any](field *T, value T, unset bool) {
	if unset {
		*field = value
	}
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// Lookup implements KeySource. For a kid that it does not know, or without any
// keys, it fetches them, or waits for a fetch under way, at most once in half a
// minute and for some seconds.
func (j *JWKS) Lookup(ctx context.Context, kid string, named bool) ([]Key, error) {
	keys, err := j.known(ctx, kid, named)
	if err != nil && j.ask(ctx) {
		keys, err = j.known(ctx, kid, named)
	}
	return keys, err
}

func (j *JWKS) known(ctx context.Context, kid string, named bool) ([]Key, error) {
	set := j.current()
	if set == nil {
		return nil, ErrKeysAway
	}
	return set.Lookup(ctx, kid, named)
}

// current is the set, nil if there is none that may still be used.
func (j *JWKS) current() *Keys {
	set := j.set.Load()
	if set == nil || j.o.Clock().Sub(set.at) >= j.o.MaxStale {
		return nil
	}
	return set.keys
}

// OnChange has f called when the published keys have changed, by who has fetched
// them. It is set before anything is fetched.
func (j *JWKS) OnChange(changed func()) { j.changed = changed }

// Holds implements KeySource. Keys that cannot be fetched any more hold: they
// have not been withdrawn. Before the first fetch Lookup has given none, so that
// whatever is asked about is another source's.
func (j *JWKS) Holds(k Key) bool {
	set := j.set.Load()
	return set != nil && set.keys.Holds(k)
}

// Err is why there are no keys at present, nil if there are.
func (j *JWKS) Err() error {
	if j.current() != nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err != nil {
		return j.err
	}
	return fmt.Errorf("the keys of %s have not been fetched yet", j.host)
}

// Watch fetches the keys, again and again, until the context ends: at the
// refresh interval, and sooner while that fails.
func (j *JWKS) Watch(ctx context.Context) {
	pause := time.Second // after a failure; doubles up to unknownEvery
	for {
		wait := j.o.Refresh
		if err := j.Fetch(ctx); err != nil {
			wait = min(pause, j.o.Refresh)
			pause = min(2*pause, unknownEvery)
		} else {
			pause = time.Second
		}
		// Gateways that were started together need not fetch together.
		timer := time.NewTimer(wait - rand.N(wait/5+1))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// Fetch fetches the keys now, or waits for the fetch under way. It takes some
// seconds at most. On an error the keys stay as they are.
func (j *JWKS) Fetch(ctx context.Context) error {
	j.mu.Lock()
	if !j.join(ctx) {
		j.fetch(ctx)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.err
}

// ask is Fetch for a key that is missing. It reports whether there was one.
func (j *JWKS) ask(ctx context.Context) bool {
	j.mu.Lock()
	if j.join(ctx) {
		return true
	}
	now := j.o.Clock()
	if !j.asked.IsZero() && now.Sub(j.asked) < unknownEvery {
		j.mu.Unlock()
		return false
	}
	j.asked = now
	// Others wait for it, too: who has caused it must not end it by leaving.
	j.fetch(context.WithoutCancel(ctx))
	return true
}

// join waits for the fetch under way, if there is one; then it gives back the
// lock.
func (j *JWKS) join(ctx context.Context) bool {
	flight := j.flight
	if flight == nil {
		return false
	}
	j.mu.Unlock()
	select {
	case <-flight:
	case <-ctx.Done():
	}
	return true
}

// fetch gives back the lock, which it must be called with.
func (j *JWKS) fetch(ctx context.Context) {
	flight := make(chan struct{})
	j.flight = flight
	j.mu.Unlock()
	keys, problems, err := j.load(ctx)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.flight = nil
	close(flight)
	if err != nil {
		if ctx.Err() == nil {
			j.o.Logger.Warn("the keys for credentials could not be fetched", "host", j.host, "error", err)
		}
		j.err = fmt.Errorf("the keys of %s could not be fetched: %w", j.host, err)
		return
	}
	j.err = nil
	j.take(keys, problems)
}

// take makes keys the current ones, as far as they are what they were before.
func (j *JWKS) take(keys []Key, problems []string) {
	now := j.o.Clock()
	var fit []Key
	for _, k := range keys {
		if p, ok := j.pins[k.id]; ok && p.alg != k.alg {
			problems = append(problems, fmt.Sprintf("the key %.64q was for %s and is now for %s; it is not accepted", k.id, p.alg, k.alg))
			continue
		}
		j.pins[k.id] = pin{k.alg, now}
		k.issuer = j.o.Issuer
		fit = append(fit, k)
	}
	for len(j.pins) > maxPins { // those that have been away for longest
		oldest := ""
		for id, p := range j.pins {
			if oldest == "" || p.at.Before(j.pins[oldest].at) {
				oldest = id
			}
		}
		delete(j.pins, oldest)
	}
	if text := strings.Join(problems, "; "); text != j.problem {
		if text != "" {
			j.o.Logger.Error("not all published keys are accepted", "host", j.host, "problems", text)
		}
		j.problem = text
	}
	set, err := newKeys(fit, maxJWKSKeys)
	if err != nil { // cannot be: parseJWKS has seen to it
		set = &Keys{}
	}
	old := &Keys{}
	if was := j.set.Swap(&fetched{set, now}); was != nil {
		old = was.keys
	}
	if old.same(set) {
		return
	}
	j.o.Logger.Info("the published keys have changed", "host", j.host, "before", old.String(), "now", set.String())
	if j.changed != nil {
		j.changed()
	}
}

// load fetches and reads the document.
func (j *JWKS) load(ctx context.Context) ([]Key, []string, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, j.o.URL, nil)
	if err != nil {
		return nil, nil, errors.New("its URL is not usable")
	}
	request.Header.Set("Accept", "application/jwk-set+json, application/json")
	answer, err := j.http.Do(request)
	if err != nil {
		return nil, nil, withoutURL(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, nil, fmt.Errorf("the answer is %d %s", answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	document, err := io.ReadAll(io.LimitReader(answer.Body, maxJWKS+1))
	switch {
	case err != nil:
		return nil, nil, withoutURL(err)
	case len(document) > maxJWKS:
		return nil, nil, fmt.Errorf("the answer is larger than %d KiB", maxJWKS>>10)
	}
	return parseJWKS(document)
}

// withoutURL leaves out what may hold a secret.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("no whole answer within %s", fetchTimeout)
	}
	return err
}
