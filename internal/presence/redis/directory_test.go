package redis

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/presence"
	"github.com/aether-gateway/gateway/internal/presence/presencetest"
)

// copyOf is a directory with a clock of its own and the peers b and c.
func copyOf(t *testing.T) (*directory, *time.Time) {
	t.Helper()
	now := time.Unix(1_800_000_000, 0)
	d := newDirectory(func() time.Time { return now })
	d.enter("i")
	d.beat("i", 0, []presence.Instance{{ID: "b"}, {ID: "c"}}, now, false)
	return d, &now
}

func put(name, session string) change {
	return change{name: name, session: session, boot: "b", epoch: 1}
}

func (d *directory) wants(t *testing.T, name string, wantHeld, wantCertain bool) {
	t.Helper()
	if _, held, certain := d.lookup(name); held != wantHeld || certain != wantCertain {
		t.Errorf("%s: held %v, certain %v, want %v, %v", name, held, certain, wantHeld, wantCertain)
	}
}

// TestC7Certainty: versions become time by heartbeats; what is older than F
// counts for nothing.
func TestC7Certainty(t *testing.T) {
	t.Parallel()
	d, now := copyOf(t)
	d.wants(t, "x", false, false) // nothing was read
	d.scanBegin()
	d.scanPiece("i", 3, []change{put("x", "s")})
	d.wants(t, "x", false, false)
	if !d.scanEnd("i", 3) {
		t.Fatal("the scan failed")
	}
	d.wants(t, "x", true, true) // by the heartbeat before it
	peers := []presence.Instance{{ID: "b"}}

	*now = now.Add(presence.Staleness)
	d.beat("i", 4, peers, *now, false) // version 4 has not come
	d.wants(t, "x", true, true)
	*now = now.Add(1)
	d.wants(t, "x", false, false)
	if !d.apply("i", 4, []change{put("y", "s")}) {
		t.Fatal("a gap where there is none")
	}
	d.wants(t, "x", true, true)
	d.wants(t, "y", true, true)

	*now = now.Add(time.Second)
	d.beat("i", 4, nil, *now, false) // b is dead
	d.wants(t, "x", false, true)
	d.apply("i", 5, []change{put("z", "s")}) // b is heard of
	d.wants(t, "z", true, true)
	d.beat("i", 4, nil, *now, false) // that heartbeat was before it
	d.wants(t, "z", true, true)
	d.beat("j", 1, peers, *now, true)
	d.wants(t, "z", false, false)
}

// TestC7Gap: a missing change costs certainty, at the latest after F, until a
// scan has closed the gap.
func TestC7Gap(t *testing.T) {
	t.Parallel()
	d, now := copyOf(t)
	peers := []presence.Instance{{ID: "b"}}
	d.scanBegin()
	d.scanPiece("i", 3, []change{put("x", "s"), put("y", "s")})
	d.scanEnd("i", 3)
	if d.apply("i", 5, []change{put("z", "s")}) {
		t.Fatal("the gap was not seen")
	}
	*now = now.Add(presence.Staleness + 1)
	d.beat("i", 5, peers, *now, false)
	d.wants(t, "x", false, false)
	d.scanBegin()
	d.scanPiece("i", 5, []change{put("y", "s"), put("z", "s")}) // 4 was the end of x
	d.scanEnd("i", 5)
	d.wants(t, "x", false, true)
	d.wants(t, "y", true, true)
	d.wants(t, "z", true, true)

	d.scanBegin()
	d.scanPiece("i", 6, nil)
	d.apply("i", 8, []change{put("w", "s")}) // 7 is missing
	if d.scanEnd("i", 6) {
		t.Fatal("the gap during the scan was not seen")
	}
	d.scanBegin()
	d.apply("i", 9, []change{put("w", "s")})
	d.apply("i", 11, []change{put("w", "s")})
	d.scanPiece("i", 11, nil)
	if d.scanEnd("i", 11) {
		t.Fatal("the gap during the scan was not seen")
	}
	if d.scanPiece("i", 11, nil) || d.scanEnd("i", 11) {
		t.Fatal("a scan that has ended goes on")
	}
}

// TestC7AnyOrder: changes are made and told while scans read piece by piece;
// the copy is the same as the original whenever it is complete.
func TestC7AnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		d, _ := copyOf(t)
		truth := map[string]string{}
		version := uint64(0)
		type message struct {
			version uint64
			changes []change
		}
		var told []message // published and not received
		name := func() string { return fmt.Sprintf("n%02d", r.IntN(30)) }
		mutate := func() {
			version++
			var list []change
			for range 1 + r.IntN(3) {
				n := name()
				if r.IntN(2) == 0 {
					truth[n] = fmt.Sprint(version)
				} else {
					delete(truth, n)
				}
				list = append(list, put(n, truth[n]))
			}
			told = append(told, message{version, list})
		}
		receive := func() {
			if len(told) > 0 {
				d.apply("i", told[0].version, told[0].changes)
				told = told[1:]
			}
		}
		step := func() {
			switch r.IntN(3) {
			case 0:
				mutate()
			case 1:
				receive()
			}
		}
		for range 5 {
			for range r.IntN(20) {
				step()
			}
			if r.IntN(3) == 0 && len(told) > 0 {
				// The subscription breaks: what is on its way is lost.
				told = nil
				d.scanAbort()
			}
			d.scanBegin()
			began, cursor := uint64(0), ""
			for first := true; ; first = false {
				for range r.IntN(4) {
					step()
				}
				var rest []string
				for n := range truth {
					if n > cursor {
						rest = append(rest, n)
					}
				}
				slices.Sort(rest)
				piece := rest[:min(len(rest), 4)]
				var rows []change
				for _, n := range piece {
					rows = append(rows, put(n, truth[n]))
				}
				at := version
				if first {
					began = at
				}
				for range r.IntN(3) {
					step() // on its way to us
				}
				d.scanPiece("i", at, rows)
				if len(piece) < 4 {
					break
				}
				cursor = piece[len(piece)-1]
			}
			for range r.IntN(4) {
				step()
			}
			if !d.scanEnd("i", began) {
				t.Fatalf("seed %d: the scan failed", seed)
			}
			for len(told) > 0 {
				receive()
			}
			if !d.synced || d.applied != version {
				t.Fatalf("seed %d: synced %v at %d of %d", seed, d.synced, d.applied, version)
			}
			if len(d.names) != len(truth) {
				t.Fatalf("seed %d: %d names, want %d", seed, len(d.names), len(truth))
			}
			for n, session := range truth {
				if d.names[n].session != session {
					t.Fatalf("seed %d: %s is held by %q, want %q", seed, n, d.names[n].session, session)
				}
			}
		}
	}
}

// TestC7Reconnect: the connection that listens breaks and hangs; what was
// missed is seen all the same.
func TestC7Reconnect(t *testing.T) {
	t.Parallel()
	w := setup(t)
	proxy := faultproxy.New(t, w.server.Addr())
	a := w.start("a", through(proxy), func(o *Options) { o.Beat = 100 * time.Millisecond })
	b := w.start("b")
	w.Advance(presence.TTL + time.Second)
	sees := func(name, session string) {
		t.Helper()
		presencetest.Eventually(t, name+" is held by "+session, func() bool {
			a.p.beat(t.Context())
			held, certain := a.Held(name)
			e, _ := a.Lookup(name)
			return certain && held == (session != "") && e.SessionID == session
		})
	}
	sees("agent::x", "")
	for i := range 5 {
		x := presencetest.Take(t, b, claim(fmt.Sprint("x", i), "agent::x")).Lease
		sees("agent::x", fmt.Sprint("x", i))
		switch i % 2 {
		case 0:
			proxy.Cut()
			if err := b.Release(t.Context(), x); err != nil {
				t.Fatal(err)
			}
			presencetest.Take(t, b, claim(fmt.Sprint("y", i), fmt.Sprint("agent::y", i)))
		case 1:
			proxy.Blackhole(true)
			if err := b.Release(t.Context(), x); err != nil {
				t.Fatal(err)
			}
			presencetest.Take(t, b, claim(fmt.Sprint("y", i), fmt.Sprint("agent::y", i)))
			presencetest.Eventually(t, "the connection is given up", func() bool {
				return a.p.beat(t.Context()) != nil
			})
			proxy.Blackhole(false)
			proxy.Cut()
		}
		sees("agent::x", "")
		sees(fmt.Sprint("agent::y", i), fmt.Sprint("y", i))
	}
}

// TestC7LargeScan: many pieces, while names come and go.
func TestC7LargeScan(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 2)
	a, b := m[0], m[1]
	const n = 3*scanPiece + 7
	for i := range n / 100 {
		names := make([]string, 100)
		for k := range names {
			names[k] = fmt.Sprintf("agent::%03d::%d", k, i)
		}
		presencetest.Take(t, a, claim(fmt.Sprint("s", i), names...))
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			lease, err := a.Acquire(t.Context(), fmt.Sprint("moving", i), fmt.Sprint("agent::", i%100, "::m"), fmt.Sprint("zz", i%7))
			if err == nil {
				err = a.Release(t.Context(), lease)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	c := w.start("late")
	for range 5 {
		if !c.p.scan() {
			// A piece of the first scan and one of this one may meet.
			t.Log("a scan was repeated")
		}
	}
	close(stop)
	wg.Wait()
	presencetest.Eventually(t, "all names are known", func() bool {
		c.beats(t)
		_, certain := c.Held("agent::x")
		return certain && c.p.dir.size() == n/100*100 && b.p.dir.size() == n/100*100
	})
	if e, _ := c.Lookup("agent::007::3"); e.SessionID != "s3" || e.Instance != a.Self().ID {
		t.Errorf("got %+v", e)
	}
}

// TestForgottenLeases: what Redis gives to this gateway and nobody here knows
// of is given back.
func TestForgottenLeases(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 2)
	a, b := m[0], m[1]
	presencetest.Take(t, a, claim("kept", "agent::kept"))
	x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
	a.p.mu.Lock()
	a.p.forget(a.p.own[x.SessionID])
	a.p.mu.Unlock()
	if held, _ := a.Held("agent::x"); held {
		t.Error("a counts it as held")
	}
	a.p.wantScan()
	presencetest.Eventually(t, "the name is free", func() bool {
		a.beats(t)
		_, err := b.Claim(t.Context(), claim(newID(), "agent::x"))
		return err == nil
	})
	presencetest.Refused(t, b, claim("two", "agent::kept"))
	_ = w
}

// TestMissingLeases: keys are deleted behind the gateways' backs.
func TestMissingLeases(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 2)
	a, b := m[0], m[1]
	x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
	y := presencetest.Take(t, a, claim("two", "agent::y")).Lease
	for _, key := range []string{"s", "l", "names"} {
		if err := w.raw.Del(t.Context(), "{aether}:0:"+key).Err(); err != nil {
			t.Fatal(err)
		}
	}
	z := presencetest.Take(t, b, claim("three", "agent::y")).Lease
	a.p.wantScan()
	presencetest.Eventually(t, "x is there again, and y is lost", func() bool {
		a.beats(t)
		h, err := b.Find(t.Context(), "one")
		return err == nil && h.Epoch == x.Epoch && y.Lost()
	})
	presencetest.Refused(t, b, claim("four", "agent::x"))
	if x.Lost() || z.Lost() {
		t.Error("lost")
	}
	if s := a.p.Stats(); s.Scans == 0 || s.Beats == 0 || s.Leases != 1 {
		t.Errorf("stats %+v", s)
	}
}

// TestMalformedMessages: nobody but gateways writes on the channels; rubbish
// is ignored.
func TestMalformedMessages(t *testing.T) {
	t.Parallel()
	w, m := settled(t, 2)
	a, b := m[0], m[1]
	x := presencetest.Take(t, a, claim("one", "agent::x")).Lease
	presencetest.Eventually(t, "b sees it", func() bool { held, _ := b.Held("agent::x"); return held })
	for _, channel := range []string{"dir", "all", "to:" + a.Self().ID} {
		for _, text := range []string{
			"", "x", "5:hel", strings.Repeat("9", 100),
			string(frame(b.Self().ID, "presence.yield", []byte("rubbish"))),
			string(frame(b.Self().ID, "presence.yield", appendField(appendField(nil, "id"), "nobody"))),
			string(frame(b.Self().ID, "presence.yielded", []byte("rubbish"))),
			string(frame(b.Self().ID, "presence.yielded", []byte("1:x4:true0:"))),
			string(frame(b.Self().ID, "presence.unknown", nil)),
			string(frame(b.Self().ID, "nobody listens", nil)),
		} {
			if err := w.raw.Publish(t.Context(), "{aether}:0:"+channel, text).Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	presencetest.Take(t, b, claim("two", "agent::y"))
	presencetest.Eventually(t, "a sees what came after", func() bool { held, _ := a.Held("agent::y"); return held })
	if x.Lost() {
		t.Error("lost")
	}
}
