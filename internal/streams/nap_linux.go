package streams

import (
	"syscall"
	"time"
)

// nap sleeps for less than a millisecond, which timers cannot: the runtime
// waits for events in whole milliseconds.
func nap(d time.Duration) {
	rest := syscall.NsecToTimespec(int64(d))
	for syscall.Nanosleep(&rest, &rest) == syscall.EINTR {
	}
}
