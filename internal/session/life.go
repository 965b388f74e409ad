package session

import (
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
)

// life is how long a session may go on: until its credential expires or is
// revoked. A new credential takes the place of the old one as a whole, so that
// who reads it needs no lock.
type life struct {
	held atomic.Pointer[holding]
	// barred: the session is put out; nothing more is acted on or delivered.
	barred atomic.Bool

	mu    sync.Mutex
	alarm *time.Timer // one for the session, for what is due next
	over  bool        // no alarm is set any more
}

// holding is a credential that a session goes on.
type holding struct {
	credential *auth.Credential
	expires    int64 // Unix ns; forever: never
	warning    int64 // Unix ns of when the client is warned
	warned     atomic.Bool
}

const forever = math.MaxInt64

// hold says when a credential that was accepted at a time warns and expires: the
// warning comes after three quarters of its lifetime, or of what is left of it
// if the credential does not say when it was issued.
func hold(c *auth.Credential, now time.Time) *holding {
	h := &holding{credential: c, expires: forever, warning: forever}
	// What lies past the end of nanoseconds, in 2262, would wrap to the past.
	if c.ExpiresAt.IsZero() || c.ExpiresAt.After(time.Unix(0, forever)) {
		return h
	}
	begin := now
	if !c.IssuedAt.IsZero() && c.IssuedAt.Before(now) {
		begin = c.IssuedAt
	}
	h.expires = c.ExpiresAt.UnixNano()
	h.warning = begin.Add(c.ExpiresAt.Sub(begin) / 4 * 3).UnixNano()
	return h
}

// expiresAtMs is the expiry on the wire; 0 is never.
func (h *holding) expiresAtMs() int64 {
	if h.expires == forever {
		return 0
	}
	return time.Unix(0, h.expires).UnixMilli()
}

// expired ends a session whose credential has expired, and reports whether it
// may do nothing more. It is asked before each frame is acted on and before each
// delivery is written, so that neither passes the instant.
func (s *Session) expired(now time.Time) bool {
	if s.life.barred.Load() {
		return true
	}
	if now.UnixNano() < s.life.held.Load().expires {
		return false
	}
	s.life.barred.Store(true)
	s.once.Do(func() {
		s.m.stats.CredentialsExpired.Add(1)
		s.stop(cause{err: status.Error(codes.Unauthenticated, "the credential has expired"), flush: true, within: putOutWithin})
	})
	return true
}

// putOutWithin bounds how long the stream of a session that is put out goes on,
// whatever its client and the store do.
const putOutWithin = 2 * time.Second

// putOut ends a session for a reason that its client cannot mend by itself: it
// is told why, and from now on nothing it sends is acted on and nothing is
// delivered to it. It reports whether that is why it ends.
func (s *Session) putOut(code codes.Code, word, reason string) (first bool) {
	s.life.barred.Store(true)
	s.once.Do(func() {
		first = true
		// A mailbox that takes no more has a client that reads nothing.
		s.box.Urgent(signalFrame(aetherv1.Signal_SIGNAL_TYPE_FORCE_DISCONNECT, reason, word, 0))
		s.stop(cause{err: status.Error(code, reason), flush: true, within: putOutWithin})
	})
	return first
}

// watchLife does what is due: it warns the client, ends the session, or sets the
// alarm for either.
func (s *Session) watchLife() {
	now := s.m.o.Now()
	if s.expired(now) {
		return
	}
	h := s.life.held.Load()
	next := h.expires
	if s.extended && !h.warned.Load() {
		if now.UnixNano() < h.warning {
			next = h.warning
		} else if h.warned.CompareAndSwap(false, true) {
			s.urgent(expiringFrame(h.expiresAtMs()))
		}
	}
	if next != forever {
		s.setAlarm(time.Duration(next - now.UnixNano()))
	}
}

// leastAlarm keeps a clock that stands still from being asked all the time.
const leastAlarm = time.Millisecond

func (s *Session) setAlarm(after time.Duration) {
	l := &s.life
	l.mu.Lock()
	defer l.mu.Unlock()
	switch after = max(after, leastAlarm); {
	case l.over:
	case l.alarm == nil:
		l.alarm = time.AfterFunc(after, func() { s.guard(s.watchLife) })
	default:
		l.alarm.Reset(after)
	}
}

func (s *Session) stopAlarm() {
	l := &s.life
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	if l.alarm != nil {
		l.alarm.Stop()
	}
}
