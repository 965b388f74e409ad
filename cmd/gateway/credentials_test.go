package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/tlsfile/tlstest"
)

func write(t *testing.T, path, content string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// keyPair is a new one: its public half, and the PEM of both.
func keyPair(t *testing.T) (public ed25519.PublicKey, private, publicPEM string) {
	t.Helper()
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	spki, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	return public, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki}))
}

func createToken(t *testing.T, key string) string {
	t.Helper()
	return strings.TrimSpace(succeed(t, nil, "token", "create", "--key-file", key, "--kind", "user", "--user", "u", "--workspace", "w"))
}

// send sends as the user of createToken, and says what became of it.
func sendAs(g *process, token string, more ...string) (code int, stderr string) {
	code, _, stderr = command(append([]string{"AETHER_ADDR=" + g.grpc, "AETHER_TOKEN=" + token}, more...), "",
		"send", "--as", "us::u::cli", "--to", "gu::w", "--text", "hello", "--timeout", "20s")
	return code, stderr
}

// TestKeysAreExchanged signs with a private key, checks with its public half, and
// exchanges both while the gateway runs.
func TestKeysAreExchanged(t *testing.T) {
	t.Parallel()
	own, public := t.TempDir(), t.TempDir()
	_, private, publicPEM := keyPair(t)
	first := write(t, filepath.Join(own, "first.pem"), private)
	write(t, filepath.Join(public, "first.pem"), publicPEM)
	g := launch(t, []string{"AETHER_JWT_KEY_FILE=" + public}, "dev", "--data-dir", t.TempDir(), "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
	token := createToken(t, first)
	if code, stderr := sendAs(g, token); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if code, _, stderr := command(nil, "", "token", "create", "--key-file", filepath.Join(public, "first.pem"), "--kind", "operator"); code != 1 || !strings.Contains(stderr, "a public key cannot sign") {
		t.Errorf("a public key signs: exit %d: %s", code, stderr)
	}

	// A session that began with the key ends with it.
	connected := make(chan string, 1)
	go func() {
		_, _, stderr := command([]string{"AETHER_ADDR=" + g.grpc, "AETHER_TOKEN=" + token}, "", "connect", "--as", "us::u::live", "--timeout", "20s")
		connected <- stderr
	}()
	g.stderr.wait(t, `us::u::live`)

	_, private, publicPEM = keyPair(t)
	second := write(t, filepath.Join(own, "second.pem"), private)
	write(t, filepath.Join(public, "second.pem"), publicPEM)
	if err := os.Remove(filepath.Join(public, "first.pem")); err != nil {
		t.Fatal(err)
	}
	removed := time.Now()
	g.stderr.wait(t, `EdDSA key \"second\"`)
	if took := time.Since(removed); took > 10*time.Second {
		t.Errorf("the keys were exchanged after %s", took)
	}
	select {
	case stderr := <-connected:
		if !strings.Contains(stderr, "revoked") {
			t.Errorf("the session of a removed key ended with: %s", stderr)
		}
	case <-time.After(30 * time.Second):
		t.Error("the session of a removed key goes on")
	}
	if code, stderr := sendAs(g, token); code != 1 || !strings.Contains(stderr, "a key that the gateway does not have") {
		t.Errorf("a removed key: exit %d: %s", code, stderr)
	}
	if code, stderr := sendAs(g, createToken(t, second)); code != 0 {
		t.Errorf("the new key: exit %d: %s", code, stderr)
	}
}

// TestPublishedKeys: another server publishes the keys.
func TestPublishedKeys(t *testing.T) {
	t.Parallel()
	public, private, _ := keyPair(t)
	document, err := json.Marshal(map[string]any{"keys": []any{map[string]any{
		"kty": "OKP", "crv": "Ed25519", "kid": "published", "x": base64.RawURLEncoding.EncodeToString(public),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	idp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(document) }))
	t.Cleanup(idp.Close)
	g := launch(t, []string{"AETHER_AUTH_JWKS_URL=" + idp.URL, "AETHER_AUTH_JWKS_ISSUER=https://idp"},
		"dev", "--data-dir", t.TempDir(), "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
	key := write(t, filepath.Join(t.TempDir(), "published.pem"), private)
	args := []string{"token", "create", "--key-file", key, "--kind", "user", "--user", "u", "--workspace", "w"}
	if code, stderr := sendAs(g, strings.TrimSpace(succeed(t, nil, append(args, "--issuer", "https://idp")...))); code != 0 {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if code, stderr := sendAs(g, strings.TrimSpace(succeed(t, nil, args...))); code != 1 || !strings.Contains(stderr, "another issuer") {
		t.Errorf("in the name of the gateway: exit %d: %s", code, stderr)
	}
	for _, url := range []string{"http://192.0.2.1/keys", "https://u:p-hidden@idp.example/keys"} {
		code, stdout, stderr := command([]string{"AETHER_AUTH_JWKS_URL=" + url}, "", "config", "check", "--mode", "dev")
		if code != 1 || !strings.Contains(stdout, "auth.jwks_url") || strings.Contains(stdout+stderr, "p-hidden") {
			t.Errorf("%s: exit %d: %s%s", url, code, stdout, stderr)
		}
	}
}

// TestPortsWithTLS: both ports serve TLS, the client commands reach it, by a token
// or by a certificate.
func TestPortsWithTLS(t *testing.T) {
	t.Parallel()
	dir, servers, clients := t.TempDir(), tlstest.New(t, "servers"), tlstest.New(t, "clients")
	cert, key := servers.Issue("one", x509.ExtKeyUsageServerAuth)
	file := func(name, content string) string { return write(t, filepath.Join(dir, name), content) }
	environ := []string{
		"AETHER_TLS_CERT_FILE=" + file("cert.pem", cert), "AETHER_TLS_KEY_FILE=" + file("key.pem", key), "AETHER_TLS_CLIENT_CA=" + file("clients.pem", clients.PEM()),
		"AETHER_AUTH_CERTIFICATES=[{dns: u.example, kind: user, user: u, workspaces: [w]}, {dns: o.example, kind: operator}]",
	}
	data := t.TempDir()
	g := launch(t, environ, "dev", "--data-dir", data, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
	token := createToken(t, filepath.Join(data, devKeyFile))
	ca := file("ca.pem", servers.PEM())
	if code, stderr := sendAs(g, token, "AETHER_CA="+ca); code != 0 {
		t.Errorf("with TLS: exit %d: %s", code, stderr)
	}
	if code, _, stderr := command([]string{"AETHER_ADDR=" + g.grpc, "AETHER_TOKEN=" + token}, "", "send", "--as", "us::u::cli", "--to", "gu::w", "--text", "x", "--timeout", "2s"); code != 1 || !strings.Contains(stderr, "--ca") {
		t.Errorf("without TLS: exit %d: %s", code, stderr)
	}
	own, ownKey := clients.Issue("u", x509.ExtKeyUsageClientAuth)
	by := []string{"AETHER_CA=" + ca, "AETHER_CERT=" + file("u.pem", own), "AETHER_KEY=" + file("u.key", ownKey)}
	if code, stderr := sendAs(g, "", by...); code != 0 {
		t.Errorf("by certificate: exit %d: %s", code, stderr)
	}
	other, otherKey := clients.Issue("v", x509.ExtKeyUsageClientAuth)
	by = []string{"AETHER_CA=" + ca, "AETHER_CERT=" + file("v.pem", other), "AETHER_KEY=" + file("v.key", otherKey)}
	if code, stderr := sendAs(g, "", by...); code != 1 || !strings.Contains(stderr, "auth.certificates") {
		t.Errorf("by another certificate: exit %d: %s", code, stderr)
	}
	operator, operatorKey := clients.Issue("o", x509.ExtKeyUsageClientAuth)
	for name, flags := range map[string][]string{
		"token":       {"--data-dir", data},
		"certificate": {"--cert", file("o.pem", operator), "--key", file("o.key", operatorKey)},
	} {
		if out := succeed(t, nil, append([]string{"sessions", "list", "--addr", g.grpc, "--ca", ca, "--output", "json"}, flags...)...); !strings.HasPrefix(out, "[") {
			t.Errorf("an operator by %s: %s", name, out)
		}
	}
	if code, _, stderr := command(by, "", "sessions", "list", "--addr", g.grpc); code != 1 || !strings.Contains(stderr, "not accepted as a credential") {
		t.Errorf("no operator: exit %d: %s", code, stderr)
	}
	if code, _, stderr := command(nil, "", "sessions", "list", "--addr", g.grpc, "--data-dir", data, "--timeout", "2s"); code != 1 || !strings.Contains(stderr, "--ca") {
		t.Errorf("an operator without TLS: exit %d: %s", code, stderr)
	}
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: servers.Pool()}}}
	answer, err := web.Get("https://" + g.http + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if body, _ := io.ReadAll(answer.Body); answer.StatusCode != http.StatusOK || answer.ProtoMajor != 2 {
		t.Errorf("%s %s: %s", answer.Status, answer.Proto, body)
	}

	if out := succeed(t, nil, "health", "--http-addr", g.http, "--tls"); !strings.HasPrefix(out, "ready\n") {
		t.Errorf("gateway health: %s", out)
	}
	if code, _, stderr := command(nil, "", "health", "--http-addr", g.http); code != 1 {
		t.Errorf("gateway health without TLS: exit %d: %s", code, stderr)
	}

	cert, key = servers.Issue("two", x509.ExtKeyUsageServerAuth)
	file("cert.pem", cert)
	file("key.pem", key)
	g.stderr.wait(t, "the TLS files have changed")
	if code, stderr := sendAs(g, token, "AETHER_CA="+ca); code != 0 {
		t.Errorf("with the new certificate: exit %d: %s", code, stderr)
	}
}

// What an operator gets wrong is said at once, with everything else.
func TestCredentialProblems(t *testing.T) {
	t.Parallel()
	key := keyFile(t, "k.hs256")
	for name, c := range map[string]struct {
		environ []string
		says    string
	}{
		"certificate alone":     {[]string{"AETHER_TLS_CERT_FILE=" + key}, "tls.key_file: must be set"},
		"key alone":             {[]string{"AETHER_TLS_KEY_FILE=" + key}, "tls.cert_file: must be set"},
		"no certificate":        {[]string{"AETHER_TLS_CERT_FILE=" + key, "AETHER_TLS_KEY_FILE=" + key}, "tls.cert_file"},
		"clients without TLS":   {[]string{"AETHER_TLS_CLIENT_CA=" + key}, "tls.client_ca"},
		"entries without CA":    {[]string{"AETHER_AUTH_CERTIFICATES=[{dns: d, kind: agent, workspaces: [w], impl: i, spec: s}]"}, "needs tls.client_ca"},
		"entry of nobody":       {[]string{"AETHER_AUTH_CERTIFICATES=[{dns: d, kind: agent}]"}, "entry 1: the token's claims make no usable identity"},
		"entry without a name":  {[]string{"AETHER_AUTH_CERTIFICATES=[{kind: agent}]"}, "one of subject, dns, uri and email"},
		"entry, unknown field":  {[]string{"AETHER_AUTH_CERTIFICATES=[{dsn: d}]"}, "did you mean dns?"},
		"issuer without a URL":  {[]string{"AETHER_AUTH_JWKS_ISSUER=i"}, "needs auth.jwks_url"},
		"key file of no kind":   {[]string{"AETHER_JWT_KEY_FILE=credentials_test.go"}, "it is not PEM"},
		"directory without any": {[]string{"AETHER_JWT_KEY_FILE=" + t.TempDir()}, "holds no file"},
	} {
		code, stdout, stderr := command(c.environ, "", "config", "check", "--mode", "dev")
		if code != 1 || !strings.Contains(stdout, c.says) {
			t.Errorf("%s: exit %d: %s%s", name, code, stdout, stderr)
		}
	}
}

// Whoever leaves a door open is told.
func TestOpenDoors(t *testing.T) {
	t.Parallel()
	g := launch(t, []string{"AETHER_AUTH_ANONYMOUS=true"}, "dev", "--data-dir", t.TempDir(), "--grpc-addr", "0.0.0.0:0", "--http-addr", "127.0.0.1:0")
	for _, text := range []string{"without TLS", "auth.anonymous is on"} {
		if !strings.Contains(g.stderr.String(), text) {
			t.Errorf("%q is not said:\n%s", text, g.stderr)
		}
	}
	quiet := launchDev(t, t.TempDir())
	if log := quiet.stderr.String(); strings.Contains(log, "without TLS") || strings.Contains(log, "anonymous") {
		t.Error(log)
	}
}

// TestReadinessWithoutKeys: a gateway whose keys are all published by another
// server is not ready before it has some.
func TestReadinessWithoutKeys(t *testing.T) {
	t.Parallel()
	public, _, _ := keyPair(t)
	document, err := json.Marshal(map[string]any{"keys": []any{map[string]any{
		"kty": "OKP", "crv": "Ed25519", "kid": "published", "x": base64.RawURLEncoding.EncodeToString(public),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	there := make(chan struct{})
	idp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case <-there:
			_, _ = w.Write(document)
		default:
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(idp.Close)
	cfg, err := config.Load(config.Options{Mode: config.Dev, Environ: []string{"AETHER_AUTH_JWKS_URL=" + idp.URL, "AETHER_AUTH_JWKS_REFRESH=1s"}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := openCredentials(cfg, newLogger(io.Discard, "info", "json"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	for _, follow := range c.follow {
		following.Go(func() { follow(ctx) })
	}
	t.Cleanup(following.Wait)
	t.Cleanup(cancel)
	if c.check(ctx) == nil {
		t.Error("ready without any key")
	}
	close(there)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.Now().Add(30 * time.Second); c.check(ctx) != nil; <-tick.C {
		if time.Now().After(limit) {
			t.Fatal(c.check(ctx))
		}
	}
}
