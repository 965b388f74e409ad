package main

import (
	"fmt"
	"os"
	"testing"

	"github.com/aether-gateway/gateway/internal/testservices"
)

// services are the broker, the database and the Redis of a run, all private.
type services struct {
	*host
	broker   *testservices.Broker
	database *testservices.Database
	redis    *testservices.RedisServer
}

// startServices starts them. They must be closed.
func startServices() (s *services, err error) {
	s = &services{host: &host{}}
	defer func() {
		if r := recover(); r != nil {
			failure, ok := r.(startFailure)
			if !ok {
				panic(r)
			}
			s.close()
			s, err = nil, failure
		}
	}()
	s.broker = testservices.NewBroker(s.host)
	s.database = testservices.NewPostgres(s.host)
	s.redis = testservices.Redis(s.host)
	return s, nil
}

// host stands in for the test that the services of tests belong to: it ends
// them, and takes their failures.
type host struct {
	testing.TB // nil: what the services do not use is not there
	cleanups   []func()
}

type startFailure string

func (f startFailure) Error() string { return string(f) }

// Helper does nothing.
func (h *host) Helper() {}

// Cleanup has f called by close, the last first.
func (h *host) Cleanup(f func()) { h.cleanups = append(h.cleanups, f) }

// Fatal ends the start.
func (h *host) Fatal(args ...any) { panic(startFailure(fmt.Sprint(args...))) }

// Fatalf ends the start.
func (h *host) Fatalf(format string, args ...any) { panic(startFailure(fmt.Sprintf(format, args...))) }

// Errorf tells of what went wrong.
func (h *host) Errorf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
}

// Failed is false: a start that fails ends.
func (h *host) Failed() bool { return false }

// Log says nothing.
func (h *host) Log(...any) {}

// Logf says nothing.
func (h *host) Logf(string, ...any) {}

func (h *host) close() {
	for len(h.cleanups) > 0 {
		last := h.cleanups[len(h.cleanups)-1]
		h.cleanups = h.cleanups[:len(h.cleanups)-1]
		last()
	}
}
