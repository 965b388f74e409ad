package session

import (
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/auth"
)

func TestHold(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	at := func(s int) time.Time { return now.Add(time.Duration(s) * time.Second) }
	for _, c := range []struct {
		what            string
		issued, expires time.Time
		warning         time.Time
	}{
		{"issued now", now, at(100), at(75)},
		{"issued before", at(-100), at(100), at(50)},
		{"nearly over", at(-900), at(100), at(-150)},
		{"issued it does not say when", time.Time{}, at(100), at(75)},
		{"issued by a clock that is ahead", at(50), at(100), at(75)},
	} {
		h := hold(&auth.Credential{Claims: auth.Claims{IssuedAt: c.issued, ExpiresAt: c.expires}}, now)
		if h.warning != c.warning.UnixNano() || h.expires != c.expires.UnixNano() || h.expiresAtMs() != c.expires.UnixMilli() {
			t.Errorf("%s: warned at %s", c.what, time.Unix(0, h.warning))
		}
	}
	// One that expires in the year 9999 was taken for one that has expired.
	for _, never := range []time.Time{{}, time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2263, 1, 1, 0, 0, 0, 0, time.UTC)} {
		h := hold(&auth.Credential{Claims: auth.Claims{ExpiresAt: never}}, now)
		if h.warning != forever || h.expires != forever || h.expiresAtMs() != 0 {
			t.Errorf("a credential that expires at %s: warned at %d, over at %d", never, h.warning, h.expires)
		}
	}
}

// However many are asked for, few wait and few come at once; later ones may.
func TestRenewalsAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	var r renewals
	var allowed int
	for range 100 {
		if r.allow(now) {
			allowed++
		}
	}
	if allowed != renewalBurst || !r.allow(now.Add(renewalRefill)) || r.allow(now.Add(renewalRefill)) {
		t.Errorf("%d at once", allowed)
	}
	for range 2 { // a queue that was worked off begins anew
		starts, queued := 0, 0
		for range 100 {
			start, ok := r.put(auth.Presented{})
			if start {
				starts++
			}
			if ok {
				queued++
			}
		}
		if queued != maxRenewals || starts != 1 {
			t.Errorf("%d queued, %d starts", queued, starts)
		}
		for range queued {
			if _, ok := r.next(); !ok {
				t.Error("one is lost")
			}
		}
		if _, ok := r.next(); ok {
			t.Error("one too many")
		}
	}
}
