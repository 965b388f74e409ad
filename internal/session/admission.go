package session

import (
	"sync"
	"time"

	"google.golang.org/grpc/codes"
)

// maxAdmissionWait bounds what a client is told to wait.
const maxAdmissionWait = 30 * time.Second

// admission lets so many new sessions per second in, and as many at once. Those
// that it turns away are told to come back when it is their turn, so that a
// crowd that has lost a gateway spreads over the time that it needs.
type admission struct {
	rate float64 // per second; 0: no limit
	now  func() time.Time

	mu     sync.Mutex
	tokens float64
	turned float64 // whom it has turned away and may expect again
	at     time.Time
}

func newAdmission(rate int, now func() time.Time) *admission {
	return &admission{rate: float64(rate), now: now, tokens: float64(rate), at: now()}
}

// admit returns nil, or the refusal of a connection. It is asked before anything
// is known of the client, so that a refusal costs next to nothing.
func (a *admission) admit() error {
	if a.rate <= 0 {
		return nil
	}
	a.mu.Lock()
	now := a.now()
	passed := max(0, now.Sub(a.at).Seconds()) * a.rate
	a.at = now
	a.tokens = min(a.rate, a.tokens+passed)
	a.turned = max(0, a.turned-passed)
	if a.tokens >= 1 {
		a.tokens--
		a.mu.Unlock()
		return nil
	}
	a.turned++
	wait := time.Duration(a.turned / a.rate * float64(time.Second))
	a.mu.Unlock()
	return hinted(codes.ResourceExhausted, min(wait, maxAdmissionWait), "too many new connections at once; connect again later")
}

// giveBack takes back an admission: of a connection that came to nothing, so
// that those which fail take no place from others.
func (a *admission) giveBack() {
	if a.rate <= 0 {
		return
	}
	a.mu.Lock()
	a.tokens = min(a.rate, a.tokens+1)
	a.mu.Unlock()
}
