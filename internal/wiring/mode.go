package wiring

import (
	"strings"

	"github.com/aether-gateway/gateway/internal/address"
)

// Mode is how the messages of a topic reach those who read it. The zero value is
// Exclusive: one reader, from the log.
type Mode string

// The modes.
const (
	Exclusive Mode = ""
	Broadcast Mode = "broadcast"
	Balanced  Mode = "balanced"
	Mixed     Mode = "mixed"
)

// Reader is one that may read a topic: by Broadcast, or by Balanced as one of a
// Group.
type Reader struct {
	Mode  Mode
	Group string
}

// Infer returns the mode of a topic from its readers: only broadcast ones make
// it Broadcast, those of one group only Balanced, anything else Mixed, which
// serves all.
func Infer(readers []Reader) Mode {
	broadcast, other := 0, false
	groups := map[string]bool{}
	for _, r := range readers {
		switch {
		case r.Mode == Broadcast || r.Mode == "":
			broadcast++
		case r.Mode == Balanced && strings.TrimSpace(r.Group) != "":
			groups[r.Group] = true
		default:
			other = true
		}
	}
	switch {
	case other:
		return Mixed
	case broadcast > 0 && len(groups) == 0:
		return Broadcast
	case broadcast == 0 && len(groups) == 1:
		return Balanced
	}
	return Mixed
}

// ModeOf is the mode of the addresses of a prefix, with or without observers,
// which read beside those whom an address is for.
func ModeOf(p address.Prefix, observers bool) Mode {
	var readers []Reader
	switch p.Mode() {
	case address.Shared:
		readers = append(readers, Reader{Mode: Broadcast})
	case address.Workers:
		readers = append(readers, Reader{Mode: Balanced, Group: "workers"})
	default:
		return Exclusive
	}
	if observers && p.Mode() == address.Workers {
		readers = append(readers, Reader{Mode: Broadcast})
	}
	return Infer(readers)
}

// Judge reports what is wrong with settings in a mode, in the order in which the
// codes stand in [Fault]. path is the topic's.
func (s *Settings) Judge(path string, mode Mode) []Fault {
	var faults []Fault
	add := func(field string, code Code, format string, args ...any) {
		faults = append(faults, faultf(path+field, code, format, args...))
	}
	within := func(field string, zero Code, n, most int64, what string) {
		switch {
		case n == 0:
			add(field, zero, "0 leaves no room; accepted is 1 to %d%s", most, what)
		case n < 0 || n > most:
			add(field, OutOfRange, "%d is out of range; accepted is 1 to %d%s", n, most, what)
		}
	}
	within(".capacity.queue", QueueCapacityZero, int64(s.Queue), MaxMessages, " messages")
	within(".capacity.ring", RingCapacityZero, int64(s.Ring), MaxMessages, " messages")
	if s.Bytes < MinBytes || s.Bytes > MaxBytes {
		add(".max_bytes", OutOfRange, "%d is out of range; accepted is %d to %d bytes", s.Bytes, MinBytes, MaxBytes)
	}
	within(".ack.max_in_flight", MaxInFlightZero, int64(s.Ack.MaxInFlight), MaxInFlight, " messages")
	switch {
	case s.Ack.Timeout == 0:
		add(".ack.timeout", TimeoutZero, "0s is over at once; accepted is 1ms to %s", MaxTimeout)
	case s.Ack.Timeout < 0 || s.Ack.Timeout > MaxTimeout:
		add(".ack.timeout", OutOfRange, "%s is out of range; accepted is 1ms to %s", s.Ack.Timeout, MaxTimeout)
	}
	if s.Ack.Mode != All {
		return faults
	}
	if mode != Broadcast {
		name := string(mode)
		if mode == Exclusive {
			name = "exclusive"
		}
		add(".ack.mode", AllRequiresBroadcast, "%q needs a topic that only broadcast readers have, this one is %s; accepted here is %q", All, name, First)
	}
	if s.OnLag != Disconnect {
		add(".ack.mode", AllRequiresDisconnect, "%q does not go with on_lag %q, since a member that has lost the message cannot answer; accepted with it is on_lag %q", All, s.OnLag, Disconnect)
	}
	if s.Ack.Tracking != Auto {
		add(".ack.mode", AllRequiresTracking, "%q has no effect with ack.tracking %q; accepted with it is ack.tracking %q", All, s.Ack.Tracking, Auto)
	}
	return faults
}
