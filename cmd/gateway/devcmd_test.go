package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/tlsfile"
)

// get asks an HTTP port without keeping a connection.
func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestDev(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	g := launchDev(t, dir)
	for path, want := range map[string]string{
		"/healthz": "alive", "/readyz": "log partition 0: ok", "/metrics": "aether_ready 1", "/": "Aether Gateway",
	} {
		if status, body := get(t, "http://"+g.http+path); status != 200 || !strings.Contains(body, want) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	g.stderr.wait(t, "Try, each in a terminal")

	// What it prints works as it stands.
	tokens := regexp.MustCompile(`eyJ[\w.-]+`).FindAllString(g.stderr.String(), -1)
	if len(tokens) != 2 {
		t.Fatalf("%d tokens are printed", len(tokens))
	}
	for _, token := range tokens {
		if out := succeed(t, nil, "token", "inspect", "--data-dir", dir, token); !strings.Contains(out, "checked: good") {
			t.Error(out)
		}
	}
	succeed(t, nil, "send", "--data-dir", dir, "--as", "us::alice::cli", "--to", "ag::demo::echo::1", "--text", "hello")

	// Secrets are for the owner only.
	for _, name := range []string{devKeyFile, devOperatorFile, devStateFile, devAddressFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: %v %v", name, info.Mode(), err)
		}
	}
	operator, err := readToken(filepath.Join(dir, devOperatorFile))
	if err != nil {
		t.Fatal(err)
	}
	succeed(t, nil, "token", "inspect", "--data-dir", dir, operator)

	if code, _, stderr := command(nil, "", "dev", "--data-dir", dir, "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0"); code != 1 ||
		!strings.Contains(stderr, "another gateway uses "+dir) {
		t.Errorf("a second gateway on the same directory: exit %d\n%s", code, stderr)
	}
	g.stop(t)
	if _, err := os.Stat(filepath.Join(dir, devAddressFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has left its address behind: %v", err)
	}

	// The next one takes the same keys and has the same mail.
	launchDev(t, dir)
	if again, err := readToken(filepath.Join(dir, devOperatorFile)); err != nil || again != operator {
		t.Error("the operator's token is another one")
	}
	out := succeed(t, nil, "connect", "--data-dir", dir, "--token", tokens[0], "--as", "ag::demo::echo::1", "--count", "1")
	if !strings.HasPrefix(out, "us::alice::cli → ag::demo::echo::1  chat @") || !strings.HasSuffix(out, "  hello\n") {
		t.Errorf("got %q", out)
	}
}

func TestTakenPorts(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	addr := lis.Addr().String()
	code, stdout, stderr := command(nil, "", "dev", "--data-dir", t.TempDir(), "--grpc-addr", addr, "--http-addr", "127.0.0.1:0")
	if code != 1 || stdout != "" || !strings.Contains(stderr, addr+" is taken by another process") || !strings.Contains(stderr, "--grpc-addr or AETHER_GRPC_ADDR") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	environ := []string{"AETHER_OPS_ADDR=" + addr, "AETHER_HTTP_ADDR=192.0.2.1:80"}
	code, _, stderr = command(environ, "", "dev", "--data-dir", t.TempDir(), "--grpc-addr", "127.0.0.1:0")
	if code != 1 || !strings.Contains(stderr, "AETHER_OPS_ADDR") || !strings.Contains(stderr, "is not an address of this machine") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

// A default port that nobody asked for must not keep a second gateway on the
// same machine from starting.
func TestDefaultOpsPortGivesWay(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	var errs []error
	var log buffer
	other := (&listeners{}).openDefault(lis.Addr().String(), newLogger(&log, "info", "json"), &errs)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	defer other.Close()
	if !strings.Contains(log.String(), "is taken") {
		t.Errorf("logged: %s", &log)
	}
}

func TestSecondSignalExitsAtOnce(t *testing.T) {
	t.Parallel()
	cfg, err := config.Load(config.Options{Mode: config.Dev})
	if err != nil {
		t.Fatal(err)
	}
	release, opening := make(chan struct{}), make(chan struct{})
	signals := make(chan os.Signal)
	p := &program{stdout: io.Discard, stderr: io.Discard, signals: signals}
	result := make(chan error, 1)
	log := newLogger(io.Discard, "info", "json")
	go func() {
		result <- p.serve(startup{cfg: cfg, log: log, waits: newWaits(cfg, log), open: func(context.Context, *tlsfile.Server) (*backend, *credentials, error) {
			close(opening)
			<-release // hangs, whatever its context says
			return nil, nil, errors.New("released")
		}})
	}()
	<-opening
	for n := 1; ; n++ {
		select {
		case signals <- syscall.SIGTERM:
			continue
		case err := <-result:
			if !errors.Is(err, errSecondSignal) || n < 3 {
				t.Errorf("after %d signals: %v", n, err)
			}
		}
		break
	}
	close(release)
}
