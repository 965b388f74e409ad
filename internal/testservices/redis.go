package testservices

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const redisStartLimit = 20 * time.Second

// RedisServer is a private Redis server without persistence. Its methods fail
// the test that made it when something goes wrong, so they are for the test's
// own goroutine.
type RedisServer struct {
	tb     testing.TB
	dir    string
	binary string
	port   int

	mu     sync.Mutex
	server *process
}

// Redis starts a server for this test alone, which takes some milliseconds; the
// test may kill, stop and start it. It ends with the test.
func Redis(tb testing.TB) *RedisServer {
	tb.Helper()
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		tb.Fatalf("testservices: %v", missing("redis-server"))
	}
	for try := 1; ; try++ {
		r := &RedisServer{tb: tb, binary: binary}
		err := r.create()
		if err == nil {
			tb.Cleanup(r.end)
			return r
		}
		r.end()
		if !errors.Is(err, errExited) || try == attempts {
			tb.Fatalf("testservices: Redis: %v", err)
		}
	}
}

// URL returns the address for a Redis client.
func (r *RedisServer) URL() string { return "redis://" + r.Addr() + "/0" }

// Addr returns host and port.
func (r *RedisServer) Addr() string { return loopback(r.port) }

// Kill ends the server with SIGKILL: its data is gone, as it keeps none.
func (r *RedisServer) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server.kill()
}

// Stop freezes the server with SIGSTOP: connections stay open, nothing answers.
func (r *RedisServer) Stop() { r.tb.Helper(); r.signal(syscall.SIGSTOP) }

// Cont lets a stopped server go on.
func (r *RedisServer) Cont() { r.tb.Helper(); r.signal(syscall.SIGCONT) }

func (r *RedisServer) signal(s syscall.Signal) {
	r.tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.server.signal(s); err != nil {
		r.tb.Fatalf("testservices: Redis: %v: %v", s, err)
	}
	if s == syscall.SIGSTOP {
		if err := r.server.awaitStopped(); err != nil {
			r.tb.Fatalf("testservices: Redis: %v: %v", s, err)
		}
	}
}

// Start starts a killed server again on the same port, empty.
func (r *RedisServer) Start() {
	r.tb.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.server.exited() {
		r.tb.Fatal("testservices: Redis: Start: the server is running")
	}
	if err := r.boot(); err != nil {
		r.tb.Fatalf("testservices: Redis: start again: %v", err)
	}
}

func (r *RedisServer) create() error {
	dir, err := newDir("redis")
	if err != nil {
		return err
	}
	r.dir = dir
	if err := freePorts(&r.port); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.boot()
}

func (r *RedisServer) boot() error {
	logFile := filepath.Join(r.dir, "log")
	var err error
	r.server, err = start(command{
		path: r.binary,
		args: []string{
			"--port", strconv.Itoa(r.port), "--bind", "127.0.0.1",
			"--save", "", "--appendonly", "no", "--dir", r.dir,
		},
		env: []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8"},
		dir: r.dir,
		log: logFile,
	})
	if err != nil {
		return err
	}
	if err := r.server.await(redisStartLimit, r.ping); err != nil {
		return fmt.Errorf("%w\n%s", err, logTail(logFile))
	}
	return nil
}

func (r *RedisServer) ping() error {
	c, err := net.DialTimeout("tcp4", r.Addr(), time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := c.Write([]byte("PING\r\n")); err != nil {
		return err
	}
	answer, err := bufio.NewReader(c).ReadString('\n')
	if err != nil {
		return err
	}
	if strings.TrimSpace(answer) != "+PONG" {
		return fmt.Errorf("answered %q", answer)
	}
	return nil
}

func (r *RedisServer) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.server != nil {
		r.server.kill()
	}
	if err := os.RemoveAll(r.dir); err != nil {
		r.tb.Errorf("testservices: Redis: %v", err)
	}
}
