package tlsfile

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aether-gateway/gateway/internal/tlsfile/tlstest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func check[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// fixture is a server that echoes over TLS, and its files.
type fixture struct {
	*Server
	ca   *tlstest.Authority
	dir  string
	log  *bytes.Buffer
	addr string
}

func (f *fixture) put(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(f.dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// renew puts a new certificate of that name in place.
func (f *fixture) renew(t *testing.T, name string) {
	t.Helper()
	cert, key := f.ca.Issue(name, x509.ExtKeyUsageServerAuth)
	f.put(t, "cert.pem", cert)
	f.put(t, "key.pem", key)
}

func setup(t *testing.T, clients string) *fixture {
	t.Helper()
	f := &fixture{ca: tlstest.New(t, "servers"), dir: t.TempDir(), log: new(bytes.Buffer)}
	f.renew(t, "one")
	files := Files{Cert: filepath.Join(f.dir, "cert.pem"), Key: filepath.Join(f.dir, "key.pem")}
	if clients != "" {
		f.put(t, "clients.pem", clients)
		files.ClientCA = filepath.Join(f.dir, "clients.pem")
	}
	f.Server = check[*Server](t)(Open(slog.New(slog.NewTextHandler(f.log, nil)), files))
	lis := check[net.Listener](t)(tls.Listen("tcp", "127.0.0.1:0", f.Config("echo")))
	f.addr = lis.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := lis.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				_, _ = io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		_ = lis.Close()
		wg.Wait()
	})
	return f
}

// dial connects, and checks that the connection carries something.
func (f *fixture) dial(t *testing.T, own ...tls.Certificate) (*tls.Conn, error) {
	t.Helper()
	config := &tls.Config{RootCAs: f.ca.Pool(), NextProtos: []string{"echo"}}
	if len(own) > 0 { // shown also to a server that asks for another authority's
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own[0], nil }
	}
	c, err := tls.Dial("tcp", f.addr, config)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { _ = c.Close() })
	return c, echo(c)
}

func echo(c net.Conn) error {
	_ = c.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 5))
	return err
}

func serverName(c *tls.Conn) string {
	return c.ConnectionState().PeerCertificates[0].Subject.CommonName
}

// TestReload: a new certificate counts for new connections, those that are there
// go on, and a bad file changes nothing.
func TestReload(t *testing.T) {
	t.Parallel()
	f := setup(t, "")
	old := check[*tls.Conn](t)(f.dial(t))
	if name := serverName(old); name != "one" || old.ConnectionState().NegotiatedProtocol != "echo" || old.ConnectionState().Version < tls.VersionTLS12 {
		t.Fatalf("%s, %+v", name, old.ConnectionState())
	}
	f.renew(t, "two")
	f.Look()
	if name := serverName(check[*tls.Conn](t)(f.dial(t))); name != "two" {
		t.Errorf("the new certificate is not in use: %s", name)
	}
	for name, spoil := range map[string]func(){
		"rubbish":         func() { f.put(t, "cert.pem", "rubbish") },
		"another's key":   func() { _, key := f.ca.Issue("x", x509.ExtKeyUsageServerAuth); f.put(t, "key.pem", key) },
		"half":            func() { cert, _ := f.ca.Issue("x", x509.ExtKeyUsageServerAuth); f.put(t, "cert.pem", cert[:100]) },
		"empty":           func() { f.put(t, "key.pem", "") },
		"gone":            func() { _ = os.Remove(filepath.Join(f.dir, "key.pem")) },
		"larger than any": func() { f.put(t, "cert.pem", strings.Repeat("x", maxFile+1)) },
	} {
		f.renew(t, "two")
		f.Look()
		f.log.Reset()
		spoil()
		f.Look()
		if f.log.Len() > 0 {
			t.Errorf("%s: told before it can be told from a file that is being written: %s", name, f.log)
		}
		f.Look()
		f.Look()
		if n := strings.Count(f.log.String(), "are no good"); n != 1 || strings.Contains(f.log.String(), "BEGIN") {
			t.Errorf("%s: told %d times: %s", name, n, f.log)
		}
		if c, err := f.dial(t); err != nil || serverName(c) != "two" {
			t.Errorf("%s: %v", name, err)
		}
	}
	f.renew(t, "three")
	f.Look()
	if c, err := f.dial(t); err != nil || serverName(c) != "three" {
		t.Errorf("the mended files are not in use: %v", err)
	}
	if err := echo(old); err != nil {
		t.Errorf("the first connection has not lasted: %v", err)
	}
}

func TestWatch(t *testing.T) {
	t.Parallel()
	f := setup(t, "")
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f.Watch(ctx) })
	f.renew(t, "two")
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(30 * time.Second)
	for {
		c, err := f.dial(t)
		if err == nil && serverName(c) == "two" {
			break
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("the new certificate is not taken over")
		}
	}
	cancel()
	wg.Wait()
}

// TestClients: who shows a certificate must have one of an authority; who shows
// none gets in, too, and is somebody else's business.
func TestClients(t *testing.T) {
	t.Parallel()
	good, other := tlstest.New(t, "clients"), tlstest.New(t, "others")
	f := setup(t, good.PEM())
	if _, err := f.dial(t); err != nil {
		t.Errorf("no certificate: %v", err)
	}
	if _, err := f.dial(t, good.Client("c")); err != nil {
		t.Errorf("a good certificate: %v", err)
	}
	if _, err := f.dial(t, other.Client("c")); err == nil {
		t.Error("a certificate of another authority is accepted")
	}
	cert, key := good.Issue("c", x509.ExtKeyUsageServerAuth)
	if _, err := f.dial(t, check[tls.Certificate](t)(tls.X509KeyPair([]byte(cert), []byte(key)))); err == nil {
		t.Error("a server's certificate is accepted of a client")
	}
	chain := []*x509.Certificate{good.Client("c").Leaf}
	if err := f.VerifyClient(chain); err != nil {
		t.Error(err)
	}
	f.put(t, "clients.pem", other.PEM())
	f.Look()
	if f.VerifyClient(chain) == nil || f.VerifyClient(nil) == nil {
		t.Error("a certificate of an authority that was dropped is accepted")
	}
	if _, err := f.dial(t, good.Client("c")); err == nil {
		t.Error("an authority that was dropped is accepted")
	}
	if _, err := f.dial(t, other.Client("c")); err != nil {
		t.Errorf("a new authority: %v", err)
	}
	if setup(t, "").VerifyClient(chain) == nil {
		t.Error("without authorities a certificate is accepted")
	}
}

func TestOldVersionsAreRefused(t *testing.T) {
	t.Parallel()
	f := setup(t, "")
	c, err := tls.Dial("tcp", f.addr, &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11})
	if err == nil {
		_ = c.Close()
		t.Error("TLS 1.1 is accepted")
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	f := setup(t, "")
	ca := tlstest.New(t, "clients")
	cert, key := filepath.Join(f.dir, "cert.pem"), filepath.Join(f.dir, "key.pem")
	file := func(content string) string {
		path := filepath.Join(t.TempDir(), "f.pem")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, files := range map[string]Files{
		"no certificate":          {Cert: filepath.Join(f.dir, "none"), Key: key},
		"no key":                  {Cert: cert, Key: filepath.Join(f.dir, "none")},
		"the wrong way round":     {Cert: key, Key: cert},
		"a key as an authority":   {Cert: cert, Key: key, ClientCA: key},
		"no authority":            {Cert: cert, Key: key, ClientCA: file("")},
		"a damaged authority":     {Cert: cert, Key: key, ClientCA: file(ca.PEM()[:200])},
		"a damaged second one":    {Cert: cert, Key: key, ClientCA: file(ca.PEM() + ca.PEM()[:200])},
		"rubbish as an authority": {Cert: cert, Key: key, ClientCA: file("-----BEGIN CERTIFICATE-----\ncnViYmlzaA==\n-----END CERTIFICATE-----\n")},
	} {
		if s, err := Open(nil, files); err == nil || s != nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := Open(nil, Files{Cert: cert, Key: key, ClientCA: file(ca.PEM() + f.ca.PEM())}); err != nil {
		t.Error(err)
	}
}

// FuzzAuthorities: whatever a file holds, it is a pool or an error.
func FuzzAuthorities(f *testing.F) {
	f.Add([]byte(tlstest.New(f, "a").PEM()))
	f.Add([]byte("-----BEGIN CERTIFICATE-----"))
	f.Fuzz(func(t *testing.T, content []byte) {
		if pool, err := authorities(content); (err == nil) != (pool != nil) {
			t.Fatal(err)
		}
	})
}
