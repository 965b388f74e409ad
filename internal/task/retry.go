package task

import (
	"math"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/wireerr"
)

// Bounds of a retry policy.
const (
	// MaxAttempts is the most that a policy may ask for.
	MaxAttempts = 100
	// maxDelay bounds the time between two attempts.
	maxDelay = 7 * 24 * time.Hour
	// maxSchedule bounds the delays of a schedule.
	maxSchedule = MaxAttempts
	maxCodes    = 64

	// firstDelay and longestDelay are those of a policy that says nothing.
	firstDelay   = time.Second
	longestDelay = time.Minute
)

// Policy is when a failed attempt is followed by another one. The zero value
// waits with the default backoff.
type Policy struct {
	Backoff    int32   `json:"backoff,omitempty"` // aetherv1.BackoffStrategy
	InitialMS  int64   `json:"initial_ms,omitempty"`
	MaxMS      int64   `json:"max_ms,omitempty"`
	Jitter     float64 `json:"jitter,omitempty"`
	ScheduleMS []int64 `json:"schedule_ms,omitempty"`
	// Codes and Honor are kept for clients; attempts end without a code here.
	Codes []int32 `json:"codes,omitempty"`
	Honor bool    `json:"honor,omitempty"`
}

// retryOf reads a policy, which may be nil, and how many attempts there are.
func retryOf(p *aetherv1.RetryPolicy) (*Policy, int32, *wireerr.Error) {
	if p == nil {
		return nil, 1, nil
	}
	bad := func(format string, args ...any) (*Policy, int32, *wireerr.Error) {
		return nil, 0, wireerr.New(wireerr.InvalidArgument, "retry_policy: "+format, args...)
	}
	switch n := p.GetMaxAttempts(); {
	case n < 0 || n > MaxAttempts:
		return bad("max_attempts must be 0 to %d", MaxAttempts)
	case !known(aetherv1.BackoffStrategy_name, int32(p.GetBackoff())):
		return bad("backoff %d is unknown", p.GetBackoff())
	case p.GetInitialDelayMs() < 0 || p.GetInitialDelayMs() > maxDelay.Milliseconds(),
		p.GetMaxDelayMs() < 0 || p.GetMaxDelayMs() > maxDelay.Milliseconds():
		return bad("a delay must be 0 to %d ms", maxDelay.Milliseconds())
	case math.IsNaN(p.GetJitterFactor()) || p.GetJitterFactor() < 0 || p.GetJitterFactor() > 1:
		return bad("jitter_factor must be 0 to 1")
	case len(p.GetScheduleMs()) > maxSchedule || len(p.GetRetryableStatusCodes()) > maxCodes:
		return bad("schedule_ms may have %d entries, retryable_status_codes %d", maxSchedule, maxCodes)
	case p.GetBackoff() == aetherv1.BackoffStrategy_BACKOFF_STRATEGY_EXPLICIT_SCHEDULE && len(p.GetScheduleMs()) == 0:
		return bad("schedule_ms is empty")
	}
	for _, ms := range p.GetScheduleMs() {
		if ms < 0 || ms > maxDelay.Milliseconds() {
			return bad("a delay of schedule_ms must be 0 to %d", maxDelay.Milliseconds())
		}
	}
	return &Policy{
		Backoff: int32(p.GetBackoff()), InitialMS: p.GetInitialDelayMs(), MaxMS: p.GetMaxDelayMs(), Jitter: p.GetJitterFactor(),
		ScheduleMS: p.GetScheduleMs(), Codes: p.GetRetryableStatusCodes(), Honor: p.GetHonorRetryAfter(),
	}, max(p.GetMaxAttempts(), 1), nil
}

// Delay is how long to wait after an attempt, counted from 1, has failed. draw
// is a number of [0, 1). A nil Policy is the zero value.
func (r *Policy) Delay(attempt int32, draw float64) time.Duration {
	if r == nil {
		r = &Policy{}
	}
	first, longest := r.InitialMS, r.MaxMS
	if first == 0 {
		first = firstDelay.Milliseconds()
	}
	if longest == 0 {
		longest = max(longestDelay.Milliseconds(), first)
	}
	attempt = max(attempt, 1)
	delay := float64(first)
	switch aetherv1.BackoffStrategy(r.Backoff) {
	case aetherv1.BackoffStrategy_BACKOFF_STRATEGY_FIXED:
	case aetherv1.BackoffStrategy_BACKOFF_STRATEGY_EXPLICIT_SCHEDULE:
		if n := len(r.ScheduleMS); n > 0 { // the last one goes on
			delay = float64(r.ScheduleMS[min(int(attempt), n)-1])
			longest = maxDelay.Milliseconds()
		}
	default:
		delay *= math.Exp2(float64(min(attempt-1, 40)))
	}
	delay = min(delay, float64(longest), float64(maxDelay.Milliseconds()))
	delay *= 1 - r.Jitter*draw
	return time.Duration(delay) * time.Millisecond
}

func known(names map[int32]string, value int32) bool {
	_, ok := names[value]
	return ok
}
