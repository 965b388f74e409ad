package redis

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/testservices"
)

// status begins on a URL and returns why leases cannot be had.
func status(t *testing.T, w *world, url string) *presence.UnavailableError {
	t.Helper()
	m := w.start("gw", func(o *Options) { o.URL = url })
	err := m.Status()
	var away *presence.UnavailableError
	if !errors.As(err, &away) {
		t.Fatalf("%s: %v", url, err)
	}
	if strings.Contains(err.Error(), "pw-hidden") {
		t.Errorf("the password is shown: %v", err)
	}
	return away
}

// TestRefused: a gateway that Redis does not let in need not wait.
func TestRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	addr := w.server.Addr()
	for name, tt := range map[string]struct{ url, says string }{
		"a user that does not exist":       {"redis://nobody:pw-hidden@" + addr + "/0", "WRONGPASS"},
		"a database that does not exist":   {"redis://" + addr + "/4000", "DB index"},
		"TLS, which the server lacks":      {"rediss://" + addr + "/0", "answers without TLS"},
		"a certificate that nobody trusts": {"rediss://" + secured(t) + "/0", "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			if away := status(t, w, tt.url); !away.Refused || !strings.Contains(away.Reason, tt.says) {
				t.Errorf("refused %v, because %q; want %q", away.Refused, away.Reason, tt.says)
			}
		})
	}
	if err := w.raw.ConfigSet(t.Context(), "requirepass", "pw-right").Err(); err != nil {
		t.Fatal(err)
	}
	for url, says := range map[string]string{
		"redis://" + addr + "/0":            "NOAUTH",
		"redis://:pw-hidden@" + addr + "/0": "WRONGPASS",
		"rediss://" + addr + "/0":           "answers without TLS",
	} {
		if away := status(t, w, url); !away.Refused || !strings.Contains(away.Reason, says) {
			t.Errorf("%s: refused %v, because %q; want %q", url, away.Refused, away.Reason, says)
		}
	}
}

// TestNotRefused: what may pass is no refusal.
func TestNotRefused(t *testing.T) {
	t.Parallel()
	w := setup(t)
	w.server.Kill()
	for name, url := range map[string]string{
		"nothing there":           w.server.URL(),
		"nothing there, with TLS": "rediss://" + w.server.Addr() + "/0",
		"no such name":            "redis://host.invalid:6379/0",
		"loading":                 "redis://" + saying(t, "-LOADING Redis is loading the dataset in memory\r\n") + "/0",
		"a replica":               "redis://" + saying(t, "-READONLY You can't write against a read only replica.\r\n") + "/0",
		"memory full":             "redis://" + saying(t, "-OOM command not allowed when used memory > 'maxmemory'.\r\n") + "/0",
	} {
		if away := status(t, w, url); away.Refused {
			t.Errorf("%s: refused, because %q", name, away.Reason)
		}
	}
}

// TestEvictionIsWarnedOf: leases that Redis throws away would be handed out
// twice.
func TestEvictionIsWarnedOf(t *testing.T) {
	t.Parallel()
	w := setup(t)
	begin := func() string {
		log := &lockedLog{}
		w.start("gw", func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
		return log.String()
	}
	if log := begin(); strings.Contains(log, "evict") {
		t.Errorf("warned without need:\n%s", log)
	}
	w.server.Kill() // the next gateway takes the same name
	w.server.Start()
	if err := w.raw.ConfigSet(t.Context(), "maxmemory-policy", "allkeys-lru").Err(); err != nil {
		t.Fatal(err)
	}
	if log := begin(); !strings.Contains(log, "maxmemory-policy=allkeys-lru") {
		t.Errorf("not warned:\n%s", log)
	}
}

type lockedLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serving accepts connections until the test ends.
func serving(t *testing.T, l net.Listener, serve func(net.Conn)) string {
	t.Helper()
	testservices.Accept(t, l, serve)
	return l.Addr().String()
}

// saying answers everything with the same.
func saying(t *testing.T, answer string) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serving(t, l, func(conn net.Conn) {
		buf := make([]byte, 4096)
		for {
			if _, err := conn.Read(buf); err != nil {
				return
			}
			if _, err := io.WriteString(conn, answer); err != nil {
				return
			}
		}
	})
}

// secured speaks TLS with a certificate of its own making.
func secured(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tls.Listen("tcp4", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	return serving(t, l, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
}
