//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sqlitefile

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lockFile takes the exclusive lock of path for as long as the returned file
// is open; the kernel releases it with the process, however that ends. The
// lock file stays behind: removing it would let two processes lock two files
// of one name.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		holder := make([]byte, 20)
		n, _ := f.Read(holder)
		_ = f.Close()
		if pid := strings.TrimSpace(string(holder[:n])); pid != "" {
			return nil, fmt.Errorf("%w (process %s)", ErrInUse, pid)
		}
		return nil, ErrInUse
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// unlockFile gives the lock up. Closing alone might leave it for a moment to a
// child process that was forked meanwhile and has yet to start its program.
func unlockFile(f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_UN)
	return errors.Join(err, f.Close())
}
