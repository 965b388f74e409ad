package auth

import (
	"container/list"
	"math/rand/v2"
	"net/netip"
	"sync"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

// DefaultFailureRate is how many failures per second an address may have.
const DefaultFailureRate = 5

const (
	// failureBurst is how many seconds' worth of failures may come at once.
	failureBurst = 20
	// looksPerSecond is how many connections of an address that only fails are
	// looked at all the same.
	looksPerSecond = 10
	// trustedFor is how long a success speaks for its address.
	trustedFor = 10 * time.Minute
	// maxAddresses bounds the memory; past it the address that was longest
	// without a failure or a look is forgotten.
	maxAddresses = 1 << 16
	// maxFailureWait bounds what a client is told to wait.
	maxFailureWait = 30 * time.Second
)

// FailuresOptions configure Failures.
type FailuresOptions struct {
	// Rate is how many failures per second an address may have, with twenty
	// times that at once; 0 means DefaultFailureRate.
	Rate float64
	// Clock tells the time; nil means time.Now.
	Clock func() time.Time
}

// Failures slows addresses from which credentials fail again and again. It is
// safe for concurrent use; a nil *Failures slows nobody.
//
// A good credential must get in whatever others do, and a load balancer gives
// all its clients one address. So what is counted is failures, by address, and
// never by the identity that was claimed; and an address at which somebody
// succeeded in the last ten minutes is always looked at: there, only what fails
// is answered by "come back later". An address that does nothing but fail is
// sent away before it is looked at, except for ten connections a second, among
// which the first success would be found.
type Failures struct {
	rate  float64
	clock func() time.Time

	mu   sync.Mutex
	byIP map[netip.Prefix]*list.Element // of *failing
	used *list.List                     // the most recent first
}

// failing is an address with failures.
type failing struct {
	who    netip.Prefix
	budget float64 // failures that it may still have; below 0: owed
	looks  float64 // connections that may be looked at although it owes
	at     time.Time
	good   time.Time // its last success; zero: none
}

// NewFailures makes Failures that know of none.
func NewFailures(o FailuresOptions) *Failures {
	if o.Rate <= 0 {
		o.Rate = DefaultFailureRate
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	return &Failures{rate: o.Rate, clock: o.Clock, byIP: map[netip.Prefix]*list.Element{}, used: list.New()}
}

// Admit says whether a connection from the address is looked at: 0 if it is, else
// how long it is to wait.
func (f *Failures) Admit(peer netip.Addr) (wait time.Duration) {
	if f == nil || !peer.IsValid() {
		return 0
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock()
	a := f.find(peer, now)
	if a == nil || a.budget >= 0 || !a.good.IsZero() && now.Sub(a.good) < trustedFor {
		return 0
	}
	if a.looks >= 1 {
		a.looks--
		return 0
	}
	return f.wait(a)
}

// Failed counts a failure. It returns 0, or how long the client is to wait
// because there are too many from its address, and whether that begins with it.
func (f *Failures) Failed(peer netip.Addr) (wait time.Duration, begins bool) {
	if f == nil || !peer.IsValid() {
		return 0, false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock()
	a := f.find(peer, now)
	if a == nil {
		a = &failing{who: who(peer), budget: f.rate * failureBurst, looks: looksPerSecond, at: now}
		f.remember(a)
	}
	owed := a.budget < 0
	if a.budget--; a.budget >= 0 {
		return 0, false
	}
	// What is owed grows up to the longest wait, and not for ever.
	a.budget = max(a.budget, -f.rate*maxFailureWait.Seconds())
	return f.wait(a), !owed
}

// Succeeded notes that a good credential came from the address.
func (f *Failures) Succeeded(peer netip.Addr) {
	if f == nil || !peer.IsValid() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.clock()
	if a := f.find(peer, now); a != nil {
		a.good = now
		return
	}
	f.remember(&failing{who: who(peer), budget: f.rate * failureBurst, looks: looksPerSecond, at: now, good: now})
}

// Slowed is what is told to a client that is to wait: RESOURCE_EXHAUSTED, with a
// RetryInfo of up to half as much again, so that not all come at once. It does
// not say whether the client's own credential would do.
func Slowed(wait time.Duration) error {
	st := status.New(codes.ResourceExhausted, "too many credentials from this address have failed; connect again later")
	wait += rand.N(wait/2 + 1)
	if with, err := st.WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)}); err == nil {
		st = with
	}
	return st.Err()
}

// Len is how many addresses are remembered.
func (f *Failures) Len() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.byIP)
}

// find gives an address as it is now, nil if nothing is known of it.
func (f *Failures) find(peer netip.Addr, now time.Time) *failing {
	e := f.byIP[who(peer)]
	if e == nil {
		return nil
	}
	f.used.MoveToFront(e)
	a := e.Value.(*failing)
	passed := max(0, now.Sub(a.at).Seconds())
	a.at = now
	a.budget = min(f.rate*failureBurst, a.budget+passed*f.rate)
	a.looks = min(looksPerSecond, a.looks+passed*looksPerSecond)
	return a
}

func (f *Failures) remember(a *failing) {
	if f.used.Len() >= maxAddresses {
		last := f.used.Back()
		delete(f.byIP, f.used.Remove(last).(*failing).who)
	}
	f.byIP[a.who] = f.used.PushFront(a)
}

// wait is until the address may fail once more.
func (f *Failures) wait(a *failing) time.Duration {
	return min(time.Duration((1-a.budget)/f.rate*float64(time.Second)), maxFailureWait)
}

// who is whom an address stands for: of IPv6 a whole network of 64 bits, of which
// one machine has every address.
func who(peer netip.Addr) netip.Prefix {
	peer = peer.Unmap().WithZone("")
	bits := peer.BitLen()
	if peer.Is6() {
		bits = 64
	}
	p, _ := peer.Prefix(bits) // the number of bits fits
	return p
}
