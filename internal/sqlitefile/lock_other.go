//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package sqlitefile

import (
	"errors"
	"os"
)

// lockFile fails: without a lock two gateways could write one log.
func lockFile(string) (*os.File, error) {
	return nil, errors.New("sqlitefile: file locks are not supported on this system")
}

func unlockFile(f *os.File) error { return f.Close() }
