package testservices

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"testing"
)

var ports struct {
	sync.Mutex
	given map[int]bool // never given twice by one test binary
}

// freePort finds a TCP port of 127.0.0.1 that nobody uses. It keeps out of the
// range from which the kernel takes ports for outgoing connections: a client
// that redials a server it has lost could otherwise be given the server's port
// and, dialling itself, connect.
func freePort() (int, error) {
	low, high := 10240, ephemeralStart()
	if high-low < 2000 {
		low, high = 40000, 60000 // an unusual kernel setting: any range will do
	}
	ports.Lock()
	defer ports.Unlock()
	if ports.given == nil {
		ports.given = make(map[int]bool)
	}
	for range 1000 {
		port := low + rand.IntN(high-low)
		if ports.given[port] {
			continue
		}
		l, err := net.Listen("tcp4", loopback(port))
		if err != nil {
			continue
		}
		l.Close()
		ports.given[port] = true
		return port, nil
	}
	return 0, fmt.Errorf("no free port between %d and %d", low, high)
}

// FreePort returns a TCP port of 127.0.0.1 that nobody uses and that no other
// call is given, for a program of the test that has to come back on the same
// port.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, err := freePort()
	if err != nil {
		tb.Fatalf("testservices: %v", err)
	}
	return port
}

// freePorts calls freePort for each of its arguments.
func freePorts(into ...*int) error {
	for _, p := range into {
		port, err := freePort()
		if err != nil {
			return err
		}
		*p = port
	}
	return nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func ephemeralStart() int {
	const usual = 32768
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return usual
	}
	var low, high int
	if _, err := fmt.Sscan(string(b), &low, &high); err != nil {
		return usual
	}
	return low
}
