package rabbitmq

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"
)

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]endpoint{
		"rabbitmq-stream://host":                         {host: "host", port: "5552", user: "guest", password: "guest", vhost: "/"},
		"rabbitmq-stream://u:p@host:1/v":                 {host: "host", port: "1", user: "u", password: "p", vhost: "v"},
		"rabbitmq-stream+tls://u:p%40%3a%2f@[::1]:2/%2f": {host: "::1", port: "2", user: "u", password: "p@:/", vhost: "/", tls: true},
		"rabbitmq-stream://u:p@host/a%2fb%20c":           {host: "host", port: "5552", user: "u", password: "p", vhost: "a/b c"},
	} {
		got, err := parseEndpoint(text)
		if err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "host:5552", "amqp://host", "rabbitmq-stream://", "rabbitmq-stream://:5552", "rabbitmq-stream://h:0",
		"rabbitmq-stream://h:65536", "rabbitmq-stream://h:x", "rabbitmq-stream://u@h", "rabbitmq-stream://u:@h",
		"rabbitmq-stream://:p@h", "rabbitmq-stream://h/a/b", "rabbitmq-stream://h/?x=1", "rabbitmq-stream://h/#x",
	} {
		if _, err := parseEndpoint(text); !errors.Is(err, ErrConfig) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// asDialled reads the URL that the library makes of a broker's fields, the way
// the library does.
func asDialled(t *testing.T, e endpoint) endpoint {
	t.Helper()
	u, err := url.Parse(e.broker().GetUri())
	if err != nil {
		t.Fatalf("the library cannot parse its own URL: %v", err)
	}
	got := endpoint{host: u.Hostname(), port: u.Port(), user: u.User.Username(), tls: strings.Contains(u.Scheme, "+tls")}
	got.password, _ = u.User.Password()
	got.vhost, err = url.QueryUnescape(u.Path[1:])
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{
		"rabbitmq-stream://guest:guest@127.0.0.1:5552/%2f", "rabbitmq-stream+tls://u%3a:p%40w%25@[fe80::1]:1/a%2fb+c",
		"rabbitmq-stream://h", "rabbitmq-stream://h:99999", "://", "rabbitmq-stream://u:p@h/a/b", "rabbitmq-stream://%zz",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := parseEndpoint(text)
		if err != nil {
			if !errors.Is(err, ErrConfig) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if got := asDialled(t, e); got != e {
			t.Errorf("%q: parsed %+v, dialled %+v", text, e, got)
		}
	})
}

// The errors of the standard library's parser quote the text.
func TestConfigErrorsHideSecrets(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"rabbitmq-stream://u:s3cret@h:x", "rabbitmq-stream://u:s3cret@%zz", "amqp://u:s3cret@h", "rabbitmq-stream://u:s3cret@h/?a",
		"rabbitmq-stream://u:s3cret\x00@h", "rabbitmq-stream://s3cret@h", "rabbitmq-stream://u:s3cret@/v",
	} {
		_, err := Open(t.Context(), Options{URLs: []string{text}, Streams: []string{"s"}})
		if !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v", err)
		}
	}
}

func TestBadOptions(t *testing.T) {
	t.Parallel()
	urls, names := []string{"rabbitmq-stream://h"}, []string{"s"}
	for name, o := range map[string]Options{
		"no URL":            {Streams: names},
		"no stream":         {URLs: urls},
		"stream twice":      {URLs: urls, Streams: []string{"s", "s"}},
		"blank stream":      {URLs: urls, Streams: []string{" "}},
		"long stream":       {URLs: urls, Streams: []string{strings.Repeat("x", 256)}},
		"negative age":      {URLs: urls, Streams: names, MaxAge: -1},
		"age below 1 s":     {URLs: urls, Streams: names, MaxAge: time.Millisecond},
		"negative bytes":    {URLs: urls, Streams: names, MaxBytes: -1},
		"negative segments": {URLs: urls, Streams: names, SegmentBytes: -1},
		"TLS and not":       {URLs: []string{urls[0], "rabbitmq-stream+tls://h"}, Streams: names},
	} {
		if _, err := Open(t.Context(), o); !errors.Is(err, ErrConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// certificate makes a self-signed one for a host.
func certificate(t *testing.T, host string) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{host},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestTLSVerifiesTheBroker(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t, "node2")
	nodes := []endpoint{{host: "node1"}, {host: "node2"}}
	for _, test := range []struct {
		name   string
		config *tls.Config
		ok     bool
	}{
		{"one of the hosts", tlsConfig(&tls.Config{RootCAs: pool}, nodes), true},
		{"another host", tlsConfig(&tls.Config{RootCAs: pool}, nodes[:1]), false},
		{"unknown authority", tlsConfig(nil, nodes), false},
		{"server name given", tlsConfig(&tls.Config{RootCAs: pool, ServerName: "node2"}, nodes[:1]), true},
		{"other server name given", tlsConfig(&tls.Config{RootCAs: pool, ServerName: "node3"}, nodes), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			client, server := net.Pipe()
			served := make(chan struct{})
			go func() {
				defer close(served)
				defer server.Close()
				_ = tls.Server(server, &tls.Config{Certificates: []tls.Certificate{cert}}).Handshake()
			}()
			err := tls.Client(client, test.config).Handshake()
			client.Close()
			<-served
			if (err == nil) != test.ok {
				t.Errorf("handshake: %v", err)
			}
		})
	}
}
