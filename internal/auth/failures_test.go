package auth

import (
	"net/netip"
	"testing"
	"time"
)

func newFailures(rate float64) (*Failures, func(time.Duration)) {
	at := now
	return NewFailures(FailuresOptions{Rate: rate, Clock: func() time.Time { return at }}), func(d time.Duration) { at = at.Add(d) }
}

// TestFailuresSlow: an address that only fails is slowed and then sent away
// unseen; others are not touched, and a pause mends it.
func TestFailuresSlow(t *testing.T) {
	t.Parallel()
	f, pass := newFailures(1)
	bad, good := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	for i := range failureBurst {
		if f.Admit(bad) != 0 || failed(f, bad) != 0 {
			t.Fatalf("slowed after %d failures", i)
		}
	}
	last := time.Duration(0)
	for range 10 {
		wait := failed(f, bad)
		if wait <= last {
			t.Fatalf("told %s after %s", wait, last)
		}
		last = wait
	}
	seen := 0
	for range 10_000 {
		wait := f.Admit(bad)
		if wait > maxFailureWait {
			t.Fatalf("told %s", wait)
		}
		if wait == 0 {
			seen++
			failed(f, bad)
		}
		if f.Admit(good) != 0 {
			t.Fatal("another address is sent away")
		}
	}
	if seen != looksPerSecond {
		t.Errorf("%d of 10,000 are looked at", seen)
	}
	if failed(f, good) != 0 {
		t.Error("the first failure of another address is slowed")
	}
	pass(maxFailureWait + time.Second)
	if f.Admit(bad) != 0 || failed(f, bad) != 0 {
		t.Error("still slowed after the longest wait")
	}
	pass(time.Hour)
	for i := range failureBurst {
		if failed(f, bad) != 0 {
			t.Fatalf("after an hour slowed at failure %d", i)
		}
	}
}

// TestFailuresBehindOneAddress: behind a load balancer all have one address. Who
// fails there is told to wait, and everybody else is looked at all the same.
func TestFailuresBehindOneAddress(t *testing.T) {
	t.Parallel()
	f, pass := newFailures(1)
	shared := netip.MustParseAddr("10.0.0.1")
	f.Succeeded(shared)
	for range 10_000 {
		failed(f, shared)
	}
	for range 1000 {
		if f.Admit(shared) != 0 {
			t.Fatal("a client is sent away for another's failures")
		}
	}
	if failed(f, shared) == 0 {
		t.Error("failures are not slowed")
	}
	// Even where nobody has succeeded lately the first one gets through soon.
	pass(trustedFor + time.Second)
	for range 10_000 {
		failed(f, shared)
	}
	admitted := false
	for range looksPerSecond {
		admitted = f.Admit(shared) == 0
	}
	if !admitted || f.Admit(shared) == 0 {
		t.Error("no sample is looked at, or everything is")
	}
	f.Succeeded(shared)
	for range 1000 {
		if f.Admit(shared) != 0 {
			t.Fatal("a success does not speak for its address")
		}
	}
}

func TestFailuresAreBounded(t *testing.T) {
	t.Parallel()
	f, _ := newFailures(1)
	for i := range maxAddresses + 1000 {
		f.Failed(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}))
	}
	if f.Len() != maxAddresses || f.used.Len() != maxAddresses {
		t.Errorf("%d addresses", f.Len())
	}
	// One machine has 2^64 addresses of IPv6.
	g, _ := newFailures(1)
	for i := range 10_000 {
		g.Failed(netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 14: byte(i >> 8), 15: byte(i)}))
	}
	if g.Len() != 1 || failed(g, netip.MustParseAddr("2001:db8::ffff")) == 0 {
		t.Errorf("%d networks", g.Len())
	}
	h, _ := newFailures(1)
	failed(h, netip.MustParseAddr("::ffff:192.0.2.1"))
	failed(h, netip.MustParseAddr("192.0.2.1"))
	failed(h, netip.MustParseAddr("fe80::1%eth0"))
	failed(h, netip.MustParseAddr("fe80::1%eth1"))
	if h.Len() != 2 {
		t.Errorf("%d addresses of 2", h.Len())
	}
}

func TestNoFailures(t *testing.T) {
	t.Parallel()
	var none *Failures
	some, _ := newFailures(0)
	for range 1000 {
		if none.Admit(netip.Addr{}) != 0 || failed(none, netip.MustParseAddr("192.0.2.1")) != 0 || failed(some, netip.Addr{}) != 0 || some.Admit(netip.Addr{}) != 0 {
			t.Fatal("slowed")
		}
	}
	none.Succeeded(netip.Addr{})
	some.Succeeded(netip.Addr{})
	if some.Len() != 0 {
		t.Error("remembers what has no address")
	}
}

func failed(f *Failures, peer netip.Addr) time.Duration {
	wait, _ := f.Failed(peer)
	return wait
}
