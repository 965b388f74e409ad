package router

import (
	"strconv"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/delivery/tracker"
	"github.com/aether-gateway/gateway/internal/wireerr"
	"github.com/aether-gateway/gateway/internal/wiring"
)

const (
	// maxInFlight is how many tracked sends of a session may be without an outcome.
	maxInFlight = 1024

	defaultTrackTimeout = 30 * time.Second
	maxTrackTimeout     = time.Hour
)

// tracking is what a send asks for whose outcome is decided by votes.
type tracking struct {
	mode    tracker.Mode
	kind    address.Mode // of its address
	timeout time.Duration
}

// wireMode is the mode as envelopes have it.
func (t *tracking) wireMode() uint8 {
	if t.mode == tracker.All {
		return uint8(aetherv1.TrackingMode_TRACKING_MODE_ALL)
	}
	return uint8(aetherv1.TrackingMode_TRACKING_MODE_FIRST)
}

// modeOf is the reverse; 0 for a mode that is not known.
func modeOf(wire uint8) tracker.Mode {
	switch aetherv1.TrackingMode(wire) {
	case aetherv1.TrackingMode_TRACKING_MODE_FIRST:
		return tracker.First
	case aetherv1.TrackingMode_TRACKING_MODE_ALL:
		return tracker.All
	}
	return 0
}

// trackingOf reads what a send asks for; nil: nothing that needs votes. Who asks
// for tracking without a mode gets what is declared of the address.
func (r *Router) trackingOf(msg *aetherv1.SendMessage, to address.Address) (*tracking, *wireerr.Error) {
	if msg.GetTracking() == nil {
		return nil, nil
	}
	mode, timeout := msg.GetTracking().GetMode(), defaultTrackTimeout
	if d := r.topics.Of(to); d != nil {
		timeout = d.Ack.Timeout
		if mode == aetherv1.TrackingMode_TRACKING_MODE_UNSPECIFIED && d.Ack.Tracking == wiring.Auto {
			mode = aetherv1.TrackingMode_TRACKING_MODE_FIRST
			if d.Ack.Mode == wiring.All {
				mode = aetherv1.TrackingMode_TRACKING_MODE_ALL
			}
		}
	}
	t := &tracking{kind: to.Mode()}
	switch mode {
	case aetherv1.TrackingMode_TRACKING_MODE_UNSPECIFIED, aetherv1.TrackingMode_TRACKING_MODE_STORED:
		return nil, nil
	case aetherv1.TrackingMode_TRACKING_MODE_FIRST:
		t.mode = tracker.First
	case aetherv1.TrackingMode_TRACKING_MODE_ALL:
		t.mode = tracker.All
	default:
		return nil, wireerr.New(wireerr.InvalidArgument, "tracking mode %d is unknown", mode)
	}
	if msg.GetRequestId() == "" {
		return nil, wireerr.New(wireerr.InvalidArgument, "tracking FIRST or ALL needs a request_id")
	}
	if t.mode == tracker.All && !broadcast(to.Prefix()) {
		return nil, wireerr.New(wireerr.InvalidArgument, "tracking ALL is for ga, gu and uw; %s takes FIRST", to.Prefix())
	}
	switch ms := msg.GetTracking().GetTimeoutMs(); {
	case ms == 0:
		t.timeout = timeout
	case ms < 0 || ms > maxTrackTimeout.Milliseconds():
		return nil, wireerr.New(wireerr.InvalidArgument, "a tracking timeout has 1 ms to %s; 0 is %s", maxTrackTimeout, timeout).
			With("limit", strconv.FormatInt(maxTrackTimeout.Milliseconds(), 10))
	default:
		t.timeout = time.Duration(ms) * time.Millisecond
	}
	return t, nil
}

func broadcast(p address.Prefix) bool {
	switch p {
	case address.PrefixAllAgents, address.PrefixAllUsers, address.PrefixUserWorkspace:
		return true
	}
	return false
}

// take takes a permit for a tracked send.
func (t *tracking) take(s *Sender) *wireerr.Error {
	if t == nil || s.permits.Take() {
		return nil
	}
	return wireerr.New(wireerr.RateLimited, "%d tracked sends of this session have no outcome yet", s.r.maxInFlight).
		With("limit", strconv.Itoa(s.r.maxInFlight))
}

// giveBack returns the permit of a send that was refused.
func (t *tracking) giveBack(s *Sender) {
	if t != nil {
		s.permits.Return()
	}
}
