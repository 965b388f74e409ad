//go:build !linux

package streams

import "time"

// nap sleeps for a short while, or a little longer.
func nap(d time.Duration) { time.Sleep(d) }
