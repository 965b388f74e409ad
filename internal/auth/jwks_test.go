package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// eventually waits until something is so.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for !is() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("after 30 s not yet: %s", what)
		}
	}
}

// publisher is a server of keys, with the JWKS that reads it and a clock.
type publisher struct {
	*JWKS
	v       *Verifier
	fetches atomic.Int64
	answer  atomic.Value // of func(http.ResponseWriter, *http.Request)
	log     *syncBuffer

	mu  sync.Mutex
	now time.Time
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

type answer = func(http.ResponseWriter, *http.Request)

func newPublisher(t *testing.T, keys ...map[string]any) *publisher {
	t.Helper()
	p := &publisher{now: now, log: new(syncBuffer)}
	p.publish(keys...)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.fetches.Add(1)
		p.answer.Load().(answer)(w, r)
	}))
	t.Cleanup(server.Close)
	p.JWKS = must[*JWKS](t)(NewJWKS(JWKSOptions{
		URL: server.URL + "/keys?secret=hidden", Issuer: "https://idp", Clock: p.clock, Logger: slog.New(slog.NewTextHandler(p.log, nil)),
	}))
	p.v, _ = setup(t, func(o *Options) { o.Keys = p.JWKS })
	return p
}

func (p *publisher) clock() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.now
}

func (p *publisher) pass(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now = p.now.Add(d)
}

func (p *publisher) says(a answer) { p.answer.Store(a) }

func (p *publisher) publish(keys ...map[string]any) {
	if keys == nil {
		keys = []map[string]any{}
	}
	document, err := json.Marshal(map[string]any{"keys": keys})
	if err != nil {
		panic(err)
	}
	p.says(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(document) })
}

func b64(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

// published is a key pair's public half as a JSON Web Key.
func published(id string, pair crypto.Signer) map[string]any {
	m := map[string]any{"kid": id, "use": "sig"}
	switch k := pair.Public().(type) {
	case *rsa.PublicKey:
		m["kty"], m["n"], m["e"] = "RSA", b64(k.N.Bytes()), b64(big.NewInt(int64(k.E)).Bytes())
	case *ecdsa.PublicKey:
		point, err := k.Bytes()
		if err != nil {
			panic(err)
		}
		m["kty"], m["crv"], m["x"], m["y"] = "EC", "P-256", b64(point[1:33]), b64(point[33:])
	case ed25519.PublicKey:
		m["kty"], m["crv"], m["x"] = "OKP", "Ed25519", b64(k)
	}
	return m
}

// token is one that the publisher's owner has issued.
func (p *publisher) token(t *testing.T, id string, pair crypto.Signer) string {
	t.Helper()
	c := agentClaims()
	c.Issuer, c.IssuedAt, c.ExpiresAt = "https://idp", p.clock(), p.clock().Add(time.Hour)
	return mint(t, must[Key](t)(NewSigner(id, pair)), c)
}

func (p *publisher) good(t *testing.T, what, token string) {
	t.Helper()
	v, _ := setup(t, func(o *Options) { o.Keys, o.Clock = p.JWKS, p.clock })
	if _, err := v.Verify(context.Background(), token); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func (p *publisher) refuses(t *testing.T, what, token string, want error) {
	t.Helper()
	v, _ := setup(t, func(o *Options) { o.Keys, o.Clock = p.JWKS, p.clock })
	refused(t, v, what, token, want)
}

func TestJWKS(t *testing.T) {
	t.Parallel()
	all := pairs()
	p := newPublisher(t, published("r", all[RS256]), published("e", all[ES256]), published("d", all[EdDSA]))
	if p.Err() == nil {
		t.Error("keys are there before anything was fetched")
	}
	for id, alg := range map[string]string{"r": RS256, "e": ES256, "d": EdDSA} {
		p.good(t, alg, p.token(t, id, all[alg]))
	}
	if p.fetches.Load() != 1 || p.Err() != nil {
		t.Errorf("%d fetches, %v", p.fetches.Load(), p.Err())
	}
	// A key is good for the tokens of its publisher only.
	c := agentClaims()
	p.refuses(t, "the gateway's own issuer", mint(t, must[Key](t)(NewSigner("d", all[EdDSA])), c), ErrIssuer)
	// Who knows the public keys has no secret.
	p.refuses(t, "HS256", forge(t, map[string]any{"alg": HS256, "kid": "d"}, goodPayload(), string(all[EdDSA].Public().(ed25519.PublicKey))), ErrAlgorithm)
}

// TestJWKSRotation: a new key counts as soon as a token names it, an old one
// until the next fetch.
func TestJWKSRotation(t *testing.T) {
	t.Parallel()
	old, fresh := newPair(t, ES256), newPair(t, ES256)
	p := newPublisher(t, published("old", old))
	p.good(t, "old", p.token(t, "old", old))
	p.publish(published("new", fresh))
	p.pass(unknownEvery)
	v, _ := setup(t, func(o *Options) { o.Keys, o.Clock = p.JWKS, p.clock })
	used, err := v.Verify(context.Background(), p.token(t, "old", old))
	if err != nil || used.Withdrawn() {
		t.Fatal(err)
	}
	told := 0
	p.OnChange(func() { told++ })
	p.good(t, "new", p.token(t, "new", fresh))
	p.refuses(t, "withdrawn", p.token(t, "old", old), ErrUnknownKey)
	if !used.Withdrawn() || told != 1 {
		t.Errorf("told %d times", told)
	}
	used, err = v.Verify(context.Background(), p.token(t, "new", fresh))
	p.pass(2 * DefaultJWKSMaxStale)
	if err != nil || used.Withdrawn() {
		t.Error("keys that cannot be fetched are taken for withdrawn")
	}
}

// TestJWKSUnknownKid: tokens with made-up kids cause one fetch in half a minute.
func TestJWKSUnknownKid(t *testing.T) {
	t.Parallel()
	pair := newPair(t, EdDSA)
	p := newPublisher(t, published("k", pair))
	if err := p.Fetch(context.Background()); err != nil {
		t.Fatal(err)
	}
	var crowd sync.WaitGroup
	for i := range 50 {
		token := p.token(t, fmt.Sprint("made-up ", i), pair)
		crowd.Go(func() { p.refuses(t, "made up", token, ErrUnknownKey) })
	}
	crowd.Wait()
	if n := p.fetches.Load(); n != 2 {
		t.Errorf("%d fetches", n)
	}
	p.pass(unknownEvery)
	p.refuses(t, "made up", p.token(t, "x", pair), ErrUnknownKey)
	p.good(t, "known", p.token(t, "k", pair))
	if n := p.fetches.Load(); n != 3 {
		t.Errorf("%d fetches", n)
	}
}

// TestJWKSBadAnswers: what is no set of keys changes nothing, for a while.
func TestJWKSBadAnswers(t *testing.T) {
	t.Parallel()
	pair := newPair(t, EdDSA)
	p := newPublisher(t, published("k", pair))
	if err := p.Fetch(context.Background()); err != nil {
		t.Fatal(err)
	}
	many := make([]map[string]any, maxJWKEntries+1)
	usable := make([]map[string]any, maxJWKSKeys+1)
	for i := range many {
		many[i] = map[string]any{"kty": "EC", "crv": "P-521"}
	}
	for i := range usable {
		usable[i] = published(fmt.Sprint(i), pair)
	}
	for name, say := range map[string]func(){
		"empty":            func() { p.says(func(http.ResponseWriter, *http.Request) {}) },
		"no keys":          func() { p.publish() },
		"no usable key":    func() { p.publish(map[string]any{"kty": "oct", "k": "c2VjcmV0", "kid": "k", "alg": HS256}) },
		"too many entries": func() { p.publish(many...) },
		"too many keys":    func() { p.publish(usable...) },
		"an error": func() {
			p.says(func(w http.ResponseWriter, _ *http.Request) {
				http.Error(w, `{"keys":[]}`, http.StatusInternalServerError)
			})
		},
		"elsewhere": func() {
			p.says(func(w http.ResponseWriter, r *http.Request) {
				http.Redirect(w, r, "https://idp.example/", http.StatusFound)
			})
		},
		"no JSON": func() { p.says(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }) },
		"huge": func() {
			p.says(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, `{"keys":[`+strings.Repeat(" ", maxJWKS)+`]}`)
			})
		},
		"cut": func() {
			p.says(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "1000")
				_, _ = io.WriteString(w, `{"keys":[`)
			})
		},
	} {
		say()
		err := p.Fetch(context.Background())
		if err == nil || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v", name, err)
		}
		p.good(t, name, p.token(t, "k", pair))
	}
	p.pass(DefaultJWKSMaxStale)
	p.refuses(t, "stale", p.token(t, "k", pair), ErrKeysAway)
	if p.Err() == nil {
		t.Error("stale keys are said to be there")
	}
	p.publish(published("k", pair))
	if err := p.Fetch(context.Background()); err != nil {
		t.Fatal(err)
	}
	p.good(t, "back", p.token(t, "k", pair))
	if strings.Contains(p.log.String(), "hidden") {
		t.Error("the log shows the whole URL")
	}
}

// TestJWKSSlow: who waits for a slow answer may leave, and what is known is
// accepted meanwhile.
func TestJWKSSlow(t *testing.T) {
	t.Parallel()
	pair := newPair(t, EdDSA)
	p := newPublisher(t, published("k", pair))
	if err := p.Fetch(context.Background()); err != nil {
		t.Fatal(err)
	}
	asked, release := make(chan struct{}), make(chan struct{})
	p.says(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-release
	})
	stranger := p.token(t, "x", pair)
	done := make(chan error, 1)
	go func() {
		_, err := p.v.Verify(context.Background(), stranger)
		done <- err
	}()
	<-asked
	p.good(t, "known", p.token(t, "k", pair))
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if keys, err := p.Lookup(ctx, "x", true); keys != nil || !errors.Is(err, ErrUnknownKey) {
		t.Errorf("%v, %v", keys, err)
	}
	// The one who has caused the fetch is told after fetchTimeout at the latest.
	if err := <-done; !errors.Is(err, ErrUnknownKey) {
		t.Error(err)
	}
	close(release)
}

// TestJWKSAwayFromTheStart: without any keys the gateway cannot tell, which is
// not the same as a bad token.
func TestJWKSAwayFromTheStart(t *testing.T) {
	t.Parallel()
	pair := newPair(t, EdDSA)
	p := newPublisher(t)
	p.refuses(t, "no keys yet", p.token(t, "k", pair), ErrKeysAway)
	p.publish(published("k", pair))
	p.refuses(t, "asked a moment ago", p.token(t, "k", pair), ErrKeysAway)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Watch(ctx)
	}()
	eventually(t, "the keys are fetched", func() bool { return p.Err() == nil })
	cancel()
	<-done
	p.good(t, "there", p.token(t, "k", pair))
}

// TestJWKSSwaps: a kid keeps its algorithm; who can change the answer cannot make
// an old kid mean a key of another kind.
func TestJWKSSwaps(t *testing.T) {
	t.Parallel()
	first, second, other := newPair(t, ES256), newPair(t, EdDSA), newPair(t, ES256)
	p := newPublisher(t, published("k", first), published("l", first))
	fetch := func() {
		t.Helper()
		if err := p.Fetch(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	fetch()
	p.publish(published("k", second), published("l", first))
	fetch()
	p.refuses(t, "swapped", p.token(t, "k", second), ErrUnknownKey)
	p.refuses(t, "the key from before", p.token(t, "k", first), ErrUnknownKey)
	p.good(t, "the others", p.token(t, "l", first))
	if !strings.Contains(p.log.String(), "was for ES256 and is now for EdDSA") {
		t.Error(p.log)
	}
	p.publish(published("k", other))
	fetch()
	p.good(t, "another key of the same algorithm", p.token(t, "k", other))
	p.refuses(t, "the key from before", p.token(t, "k", first), ErrSignature)

	// Two keys under one kid: nobody can say which is meant.
	p.publish(published("k", first), published("k", other), published("l", first))
	fetch()
	p.refuses(t, "twice", p.token(t, "k", first), ErrUnknownKey)
	p.good(t, "the others", p.token(t, "l", first))
}

// Pins are bounded: those that have been away for longest are forgotten.
func TestJWKSPinsAreBounded(t *testing.T) {
	t.Parallel()
	pair := newPair(t, EdDSA)
	p := newPublisher(t)
	for i := range maxPins + 10 {
		p.publish(published(fmt.Sprint(i), pair), published("always", pair))
		p.pass(time.Second)
		if err := p.Fetch(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if _, kept := p.pins["always"]; len(p.pins) != maxPins || !kept {
		t.Errorf("%d pins", len(p.pins))
	}
}

func TestJWKSURL(t *testing.T) {
	t.Parallel()
	for url, ok := range map[string]bool{
		"https://idp.example/keys": true, "http://127.0.0.1:1/": true, "http://[::1]/": true, "http://localhost/": true,
		"http://idp.example/": false, "http://127.0.0.1.example/": false, "http://localhost.example/": false, "https://u:p@idp.example/": false,
		"ftp://idp.example/": false, "/keys": false, "": false, "https:///keys": false, "file:///etc/passwd": false,
	} {
		if _, err := NewJWKS(JWKSOptions{URL: url}); (err == nil) != ok {
			t.Errorf("%q: %v", url, err)
		}
	}
}

// TestJWKSOverTLS: the server of the keys must be who it says it is.
func TestJWKSOverTLS(t *testing.T) {
	t.Parallel()
	document, _ := json.Marshal(map[string]any{"keys": []any{published("k", pairs()[EdDSA])}})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(document) }))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	stranger := must[*JWKS](t)(NewJWKS(JWKSOptions{URL: server.URL}))
	if err := stranger.Fetch(context.Background()); err == nil || stranger.Err() == nil {
		t.Error("keys of a server that nobody vouches for")
	}
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	known := must[*JWKS](t)(NewJWKS(JWKSOptions{URL: server.URL, TLS: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}))
	if err := known.Fetch(context.Background()); err != nil {
		t.Error(err)
	}
}
