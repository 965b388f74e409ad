package testservices

import (
	"testing"
	"time"
)

func TestRedis(t *testing.T) {
	t.Parallel()
	began := time.Now()
	r := Redis(t)
	t.Logf("up after %v", time.Since(began))
	r.Kill()
	if r.ping() == nil {
		t.Error("answers after Kill")
	}
	r.Start()
	if err := r.ping(); err != nil {
		t.Error(err)
	}
	r.Stop()
	if got := state(r.server.pid); got != 'T' {
		t.Errorf("state %c after Stop, want T", got)
	}
	r.Cont()
	if err := r.ping(); err != nil {
		t.Error(err)
	}
}
