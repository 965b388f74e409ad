package auth

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

func TestJWKSEntries(t *testing.T) {
	t.Parallel()
	all := pairs()
	with := func(entry map[string]any, name string, value any) map[string]any {
		entry[name] = value
		return entry
	}
	for name, c := range map[string]struct {
		entry   map[string]any
		alg     string // "" is none
		problem bool
	}{
		"alg":               {with(published("k", all[RS256]), "alg", RS256), RS256, false},
		"for PS256":         {with(published("k", all[RS256]), "alg", "PS256"), "", false},
		"for HS256":         {with(published("k", all[RS256]), "alg", HS256), "", false},
		"Ed25519 by name":   {with(published("k", all[EdDSA]), "alg", "Ed25519"), EdDSA, false},
		"for encryption":    {with(published("k", all[RS256]), "use", "enc"), "", false},
		"for signing only":  {with(published("k", all[RS256]), "key_ops", []string{"sign"}), "", false},
		"for verifying":     {with(published("k", all[RS256]), "key_ops", []string{"verify"}), RS256, false},
		"P-384":             {with(published("k", all[ES256]), "crv", "P-384"), "", false},
		"X25519":            {with(published("k", all[EdDSA]), "crv", "X25519"), "", false},
		"symmetric":         {map[string]any{"kty": "oct", "k": b64([]byte(testSecret)), "alg": HS256}, "", true},
		"a private key":     {with(published("k", all[EdDSA]), "d", "AA"), "", true},
		"small RSA":         {published("k", smallRSA), "", true},
		"even exponent":     {with(published("k", all[RS256]), "e", "Ag"), "", true},
		"exponent 1":        {with(published("k", all[RS256]), "e", "AQ"), "", true},
		"padded":            {with(published("k", all[RS256]), "e", "AQAB=="), "", true},
		"no modulus":        {with(published("k", all[RS256]), "n", ""), "", true},
		"huge modulus":      {with(published("k", all[RS256]), "n", strings.Repeat("A", 2000)), "", true},
		"not on the curve":  {with(published("k", all[ES256]), "y", b64(make([]byte, 32))), "", true},
		"short coordinate":  {with(published("k", all[ES256]), "x", "AA"), "", true},
		"short Ed25519":     {with(published("k", all[EdDSA]), "x", "AA"), "", true},
		"kid too long":      {published(strings.Repeat("k", maxKeyID+1), all[EdDSA]), "", true},
		"kid a number":      {with(published("k", all[EdDSA]), "kid", 1), "", true},
		"unknown type":      {map[string]any{"kty": "AKP", "alg": "ML-DSA-44"}, "", false},
		"no kid, RSA":       {with(published("k", all[RS256]), "kid", ""), RS256, false},
		"no kid, P-256":     {with(published("k", all[ES256]), "kid", ""), ES256, false},
		"no kid, Ed25519":   {with(published("k", all[EdDSA]), "kid", ""), EdDSA, false},
		"RSA called EC":     {with(published("k", all[RS256]), "kty", "EC"), "", false},
		"Ed25519 as an RSA": {with(published("k", all[EdDSA]), "kty", "RSA"), "", true},
	} {
		document, _ := json.Marshal(map[string]any{"keys": []any{c.entry, published("other", all[ES256])}})
		keys, problems, err := parseJWKS(document)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if (len(problems) > 0) != c.problem || (len(keys) == 2) != (c.alg != "") || c.alg != "" && keys[0].Algorithm() != c.alg {
			t.Errorf("%s: %v, %v", name, keys, problems)
		}
		if strings.Contains(fmt.Sprint(problems), b64([]byte(testSecret))) {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// The example of RFC 7638, section 3.1.
func TestThumbprint(t *testing.T) {
	t.Parallel()
	const n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
	k, err := (&jwk{Type: "RSA", N: n, E: "AQAB"}).key()
	if err != nil || k.ID() != "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs" {
		t.Errorf("%q, %v", k.ID(), err)
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

// FuzzJWKS: whatever a document holds, its keys can be used for one algorithm
// each, have different ids, and are few.
func FuzzJWKS(f *testing.F) {
	all := pairs()
	for _, pair := range all {
		b, _ := json.Marshal(map[string]any{"keys": []any{published("k", pair)}})
		f.Add(b)
	}
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"AA"}]}`))
	f.Add([]byte(`{"keys":[null,1,{}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		keys, _, err := parseJWKS(document)
		if (err == nil) != (len(keys) > 0) || len(keys) > maxJWKSKeys {
			t.Fatalf("%v, %v", keys, err)
		}
		seen := map[string]bool{}
		for _, k := range keys {
			if k.alg == HS256 || methods[k.alg] == nil || k.Signs() || k.id == "" || seen[k.id] {
				t.Fatalf("%v", keys)
			}
			seen[k.id] = true
		}
	})
}
