package testservices

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	mainRuns atomic.Bool

	sharedMu    sync.Mutex
	sharedStops []func() // how to end the shared services, newest last
)

// Main runs the tests and returns the exit code for os.Exit. When they are done
// it ends the shared services and removes their directories; then, if all went
// well, it fails the run when goroutines are left over (goleak). The options go
// to goleak.
func Main(m *testing.M, options ...goleak.Option) int {
	mainRuns.Store(true)
	code := m.Run()
	mainRuns.Store(false)
	stopShared()
	if err := removeRoot(); err != nil {
		fmt.Fprintln(os.Stderr, "testservices:", err)
		code = max(code, 1)
	}
	if code != 0 {
		return code
	}
	if err := leaked(options); err != nil {
		fmt.Fprintln(os.Stderr, "testservices: leaked goroutines:", err)
		return 1
	}
	return 0
}

// lastGoroutines is how long goroutines may take to end: that of a Redis client
// which could not connect sleeps for a second before it sees that the client
// is closed.
const lastGoroutines = 5 * time.Second

func leaked(options []goleak.Option) (err error) {
	for begun := time.Now(); time.Since(begun) < lastGoroutines; {
		if err = goleak.Find(options...); err == nil {
			return nil
		}
	}
	return err
}

// needMain fails a test that uses a shared service nobody would end.
func needMain(tb testing.TB) {
	tb.Helper()
	if !mainRuns.Load() {
		tb.Fatal("a shared service needs: func TestMain(m *testing.M) { os.Exit(testservices.Main(m)) }")
	}
}

func onMainEnd(stop func()) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	sharedStops = append(sharedStops, stop)
}

func stopShared() {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	for i := len(sharedStops) - 1; i >= 0; i-- {
		sharedStops[i]()
	}
	sharedStops = nil
}

// missing is the message for a program that is not installed.
func missing(program string) error {
	return fmt.Errorf("%s is not installed on this machine: run scripts/deps.sh", program)
}

// attempts is how often a service is started, each time on other ports.
const attempts = 4
