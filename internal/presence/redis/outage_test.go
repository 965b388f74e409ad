package redis

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/presencetest"
)

// through lets a gateway reach Redis through a proxy.
func through(p *faultproxy.Proxy) func(*Options) {
	return func(o *Options) { o.URL = "redis://" + p.Addr() + "/0" }
}

// TestOutage: while Redis is away leases go on until they could expire, new
// ones are refused at once, and everything recovers by itself (architecture:
// state and presence).
func TestOutage(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		begin, end func(w *world, p *faultproxy.Proxy)
	}{
		"killed":    {func(w *world, _ *faultproxy.Proxy) { w.server.Kill() }, func(w *world, _ *faultproxy.Proxy) { w.server.Start() }},
		"stopped":   {func(w *world, _ *faultproxy.Proxy) { w.server.Stop() }, func(w *world, _ *faultproxy.Proxy) { w.server.Cont() }},
		"blackhole": {func(_ *world, p *faultproxy.Proxy) { p.Blackhole(true) }, func(_ *world, p *faultproxy.Proxy) { p.Blackhole(false) }},
		"refused":   {func(_ *world, p *faultproxy.Proxy) { p.Refuse(true); p.Cut() }, func(_ *world, p *faultproxy.Proxy) { p.Refuse(false) }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := setup(t)
			proxy := faultproxy.New(t, w.server.Addr())
			a := w.start("a", through(proxy))
			w.Advance(presence.TTL + time.Second)
			x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
			given := presencetest.Take(t, a, claim("given", "agent::given")).Lease

			fault.begin(w, proxy)
			began := time.Now()
			unavailable(t, a, "two", "agent::y")
			if took := time.Since(began); took > 3*time.Second {
				t.Errorf("refused after %v", took)
			}
			began = time.Now()
			for i := range 1000 {
				unavailable(t, a, fmt.Sprint("more", i), "agent::y")
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("1000 refusals took %v", took)
			}
			if _, err := a.Find(t.Context(), "one"); !errors.Is(err, presence.ErrUnavailable) {
				t.Errorf("find: %v", err)
			}
			if err := a.Release(t.Context(), given); !errors.Is(err, presence.ErrUnavailable) {
				t.Errorf("release: %v", err)
			}
			if held, _ := a.Held("agent::given"); held {
				t.Error("what was given back is held")
			}
			if err := a.p.beat(t.Context()); err == nil {
				t.Fatal("a heartbeat got through")
			}
			w.Advance(2 * time.Second)
			if x.Lost() {
				t.Fatal("lost too early")
			}
			if held, certain := a.Held("agent::x"); !held || !certain {
				t.Errorf("its own name: held %v, certain %v", held, certain)
			}

			fault.end(w, proxy)
			a.beats(t)
			if x.Lost() {
				t.Fatal("lost in spite of the renewal")
			}
			w.Advance(presence.TTL + time.Second)
			if err := a.Status(); err != nil {
				t.Error(err)
			}
			presencetest.Refused(t, a, claim("three", "agent::x"))
			presencetest.Take(t, a, claim("four", "agent::given", "agent::y"))
			presencetest.Eventually(t, "the directory is certain", func() bool {
				a.beats(t)
				_, certain := a.Held("agent::foreign")
				return certain
			})
		})
	}
}

// TestL2Outage: an outage that is too long ends the leases, and nothing of them
// is left behind.
func TestL2Outage(t *testing.T) {
	t.Parallel()
	w := setup(t)
	proxy := faultproxy.New(t, w.server.Addr())
	a, b := w.start("a", through(proxy)), w.start("b")
	w.Advance(presence.TTL + time.Second)
	x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
	proxy.Refuse(true)
	proxy.Cut()
	w.Advance(3 * time.Second)
	if x.Lost() || a.LostSession("one") != nil {
		t.Fatal("lost too early")
	}
	w.Advance(time.Second)
	if err := a.LostSession("one"); !errors.Is(err, presence.ErrFenced) || !x.Lost() {
		t.Fatalf("%v, lost %v", err, x.Lost())
	}
	if _, certain := a.Held("agent::x"); !certain {
		t.Error("uncertain after 4 s")
	}
	presencetest.Refused(t, b, claim("early", "agent::x"))
	w.Advance(2 * time.Second)
	if _, certain := a.Held("agent::x"); certain { // delivery rule C7
		t.Error("certain after 6 s")
	}
	if _, certain := a.Instances(); certain {
		t.Error("instances are certain after 6 s")
	}
	y := presencetest.Take(t, b, claim("two", "agent::x")).Lease
	proxy.Refuse(false)
	presencetest.Eventually(t, "a is back", func() bool {
		w.Advance(time.Second)
		return a.Status() == nil
	})
	presencetest.Refused(t, a, claim("three", "agent::x"))
	if y.Lost() {
		t.Error("the new holder has lost the lease")
	}
}

// TestAbandonedClaim: a claim was given up, and the server runs it when it
// finds the time. Nobody must hold the name because of it.
func TestAbandonedClaim(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 2)
	a, b := m[0], m[1]
	presencetest.Take(t, a, claim("warm", "agent::warm")) // there are connections
	presencetest.Take(t, a, claim("old", "agent::old"))
	w.server.Stop()
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() { unavailable(t, a, fmt.Sprint("abandoned", i), "agent::x") })
	}
	wg.Go(func() {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := a.Claim(ctx, presence.Claim{SessionID: "impatient", Names: []string{"agent::y"}}); !errors.Is(err, presence.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
	wg.Wait()
	w.server.Cont()
	a.beats(t)
	b.beats(t)
	presencetest.Eventually(t, "the names are free", func() bool {
		_, err := b.Claim(t.Context(), claim(newID(), "agent::x", "agent::y"))
		if err != nil && !errors.Is(err, presence.ErrHeld) && !errors.Is(err, presence.ErrUnavailable) {
			t.Fatal(err)
		}
		if err != nil {
			a.beats(t)
			b.beats(t)
		}
		return err == nil
	})
	presencetest.Refused(t, b, claim("other", "agent::old"))
}

// TestNothingPilesUp: with Redis in a black hole, a thousand claims and many
// heartbeats leave no connections and no goroutines behind.
func TestNothingPilesUp(t *testing.T) {
	t.Parallel()
	w := setup(t)
	proxy := faultproxy.New(t, w.server.Addr())
	a := w.start("a", through(proxy))
	w.Advance(presence.TTL + time.Second)
	proxy.Blackhole(true)
	for round := range 3 {
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				if _, err := a.Claim(t.Context(), claim(fmt.Sprint(round, "/", i), "agent::x")); !errors.Is(err, presence.ErrUnavailable) {
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
		a.p.beat(t.Context())
		a.Send("nobody", "test", nil)
		a.p.mu.Lock()
		a.p.down = nil // as if a heartbeat had come through, so that the next ones try
		a.p.mu.Unlock()
	}
	if n := a.p.client.PoolStats().TotalConns + a.p.pulse.PoolStats().TotalConns; n > defaultPool+3 {
		t.Errorf("%d connections", n)
	}
	// Other tests have theirs, too.
	buf := make([]byte, 8<<20)
	stacks := string(buf[:runtime.Stack(buf, true)])
	if n := strings.Count(stacks, "presence/redis.(*Presence).Claim"); n > 100 {
		t.Errorf("%d goroutines claim", n)
	}
	if n := strings.Count(stacks, "go-redis/v9/internal/pool.(*ConnPool)"); n > 200 {
		t.Errorf("%d goroutines of the client library", n)
	}
	proxy.Blackhole(false)
	presencetest.Eventually(t, "a is back", func() bool {
		w.Advance(time.Second)
		_, err := a.Claim(t.Context(), claim(newID(), "agent::x"))
		return err == nil
	})
	presencetest.Eventually(t, "the dead connections are gone", func() bool { return proxy.Count() <= defaultPool+3 })
	if n := len(a.p.pending); n > 0 {
		t.Errorf("%d claims are pending", n)
	}
}

// TestPasswordsStaySecret: no error, status or log line shows the password.
func TestPasswordsStaySecret(t *testing.T) {
	t.Parallel()
	const password = "hunter2-hunter2"
	for _, url := range []string{
		"redis://:" + password + "@[::1", "redis://:" + password + "@host:port/0", "redis://u:" + password + "@h:1/x",
		"http://:" + password + "@h", password, "redis://u:" + password + "%zz@h:1", "redis://h:1?password=" + password,
	} {
		if _, err := New(Options{URL: url, Instance: "a"}); err == nil {
			t.Errorf("%s is accepted", strings.ReplaceAll(url, password, "***"))
		} else if strings.Contains(err.Error(), password) {
			t.Errorf("the error shows the password: %v", err)
		}
	}
	w := setup(t)
	secret := func(o *Options) { o.URL = "redis://user:" + password + "@" + w.server.Addr() + "/0" }
	a := w.start("a", secret)
	if err := a.Status(); !errors.Is(err, presence.ErrUnavailable) || strings.Contains(err.Error(), password) {
		t.Errorf("status: %v", err)
	} else {
		t.Log(err)
	}
	u := unavailable(t, a, "one", "agent::x")
	if strings.Contains(u.Error(), password) {
		t.Error("the error shows the password")
	}
	if err := w.raw.Do(t.Context(), "ACL", "SETUSER", "user", "on", ">"+password, "~*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	w.Advance(presence.TTL + time.Second)
	presencetest.Take(t, a, claim("two", "agent::x"))
}

// TestWithoutInfo: a server that does not tell who it is does for a start.
func TestWithoutInfo(t *testing.T) {
	t.Parallel()
	w := setup(t)
	if err := w.raw.Do(t.Context(), "ACL", "SETUSER", "user", "on", ">p", "~*", "&*", "+@all", "-info").Err(); err != nil {
		t.Fatal(err)
	}
	a := w.start("a", func(o *Options) { o.URL = "redis://user:p@" + w.server.Addr() + "/0" })
	w.Advance(presence.TTL + time.Second)
	presencetest.Take(t, a, claim("two", "agent::x"))
	if err := w.raw.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	w.Advance(presence.TTL + time.Second)
	presencetest.Refused(t, a, claim("three", "agent::x"))
}

// TestDatabases: two deployments on one server do not see each other.
func TestDatabases(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 1)
	a := m[0]
	b := w.start("gw0", func(o *Options) { o.URL = "redis://" + w.server.Addr() + "/1" })
	w.Advance(presence.TTL + time.Second)
	presencetest.Take(t, a, claim("one", "agent::x"))
	presencetest.Take(t, b, claim("one", "agent::x"))
	if list, _ := a.Instances(); len(list) != 1 {
		t.Errorf("instances %+v", list)
	}
}
