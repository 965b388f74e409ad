package rabbitmq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/testservices"
)

// silent listens and never answers.
func silent(t *testing.T, accept bool) string {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if !accept {
		l.Close()
		return l.Addr().String()
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// accepting serves connections until the test ends.
func accepting(t *testing.T, l net.Listener, serve func(net.Conn)) int {
	t.Helper()
	testservices.Accept(t, l, serve)
	return l.Addr().(*net.TCPAddr).Port
}

// saying answers everything with the same.
func saying(t *testing.T, answer string) int {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return accepting(t, l, func(conn net.Conn) {
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
func secured(t *testing.T) int {
	t.Helper()
	cert, _ := certificate(t, "127.0.0.1")
	l, err := tls.Listen("tcp4", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{cert}})
	if err != nil {
		t.Fatal(err)
	}
	return accepting(t, l, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
}

func TestOpenErrors(t *testing.T) {
	t.Parallel()
	t.Cleanup(func() { settle(t) })
	port := testservices.RabbitMQ(t).StreamPort()
	const password = "s3cret@x/%y"
	url := func(user, address, vhost string) string {
		return fmt.Sprintf("rabbitmq-stream://%s:s3cret%%40x%%2f%%25y@%s/%s", user, address, vhost)
	}
	broker := fmt.Sprintf("127.0.0.1:%d", port)
	guest := fmt.Sprintf("rabbitmq-stream://guest:guest@%s/", broker)
	for _, test := range []struct {
		name, url string
		kind      error
		hint      string
	}{
		{"wrong password", url("guest", broker, ""), ErrAuthentication, "user and password"},
		{"unknown user", url("nobody", broker, ""), ErrAuthentication, "user and password"},
		{"unknown vhost", guest + "nowhere", ErrAccess, "virtual host"},
		{"port closed", url("guest", silent(t, false), ""), ErrUnreachable, "rabbitmq_stream"},
		{"no stream protocol", url("guest", silent(t, true), ""), ErrUnreachable, "rabbitmq_stream"},
		{"no such host", url("guest", "host.invalid", ""), ErrUnreachable, "rabbitmq_stream"},
		{"no TLS there", fmt.Sprintf("rabbitmq-stream+tls://guest:s3cret@127.0.0.1:%d", saying(t, "HTTP/1.1 400 Bad Request\r\n\r\n")), ErrTLS, "port for TLS"},
		{"unknown authority", fmt.Sprintf("rabbitmq-stream+tls://guest:s3cret@127.0.0.1:%d", secured(t)), ErrTLS, "authorities"},
		{"bad scheme", "amqp://guest:s3cret@localhost", ErrConfig, "scheme"},
		{"bad URL", "rabbitmq-stream://guest:s3cret@%zz", ErrConfig, "URL"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			// RabbitMQ 4 takes three seconds to say no.
			patience := 15 * time.Second
			if test.kind == ErrUnreachable { // is tried again until the time is over
				patience = 2 * time.Second
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			began, log := time.Now(), new(lockedBuffer)
			logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			_, err := Open(ctx, Options{URLs: []string{test.url}, Streams: newStreams(1), Logger: logger})
			if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.hint) {
				t.Errorf("got %v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), password)) {
				t.Errorf("the password is in the error: %v", err)
			}
			if strings.Contains(log.String(), "s3cret") {
				t.Errorf("the password is in the log: %s", log)
			}
			if took := time.Since(began); took > patience+3*time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestPing(t *testing.T) {
	t.Parallel()
	proxy, d := throughProxy(t)
	if err := d.Ping(testContext(t)); err != nil {
		t.Error(err)
	}
	proxy.Refuse(true)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := d.Ping(ctx); !errors.Is(err, ErrUnreachable) {
		t.Errorf("refused: %v", err)
	}
	proxy.Refuse(false)
	if err := d.Ping(testContext(t)); err != nil {
		t.Error(err)
	}
}
