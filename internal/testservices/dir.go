package testservices

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
)

const dirPrefix = "aether-testservices-"

// root is the directory of this test binary's services. The open, locked file
// in it tells later runs that it is in use; the kernel drops the lock with the
// process, so that a crashed run's directory is found and removed.
var root struct {
	sync.Mutex
	path string
	lock *os.File
}

// newDir makes a directory for one service below the root.
func newDir(name string) (string, error) {
	root.Lock()
	defer root.Unlock()
	if root.path == "" {
		if err := makeRoot(); err != nil {
			return "", err
		}
	}
	dir, err := os.MkdirTemp(root.path, name+"-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

func makeRoot() error {
	sweep(os.TempDir())
	path, err := os.MkdirTemp("", dirPrefix)
	if err != nil {
		return err
	}
	lock, err := lockDir(path)
	if err != nil {
		os.RemoveAll(path)
		return err
	}
	// Another user (postgres) has to reach what lies below.
	if err := os.Chmod(path, 0o755); err != nil {
		lock.Close()
		os.RemoveAll(path)
		return err
	}
	root.path, root.lock = path, lock
	return nil
}

func removeRoot() error {
	root.Lock()
	defer root.Unlock()
	if root.path == "" {
		return nil
	}
	err := os.RemoveAll(root.path)
	root.lock.Close()
	root.path, root.lock = "", nil
	return err
}

// lockDir takes the lock of a root directory, or fails at once.
func lockDir(path string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(path, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return f, nil
}

// sweep removes what crashed test binaries left in dir. A directory without a
// lock file is one that is being made just now; it stays.
func sweep(dir string) {
	found, err := filepath.Glob(filepath.Join(dir, dirPrefix+"*"))
	if err != nil {
		return
	}
	for _, path := range found {
		if _, err := os.Stat(filepath.Join(path, "lock")); err != nil {
			continue
		}
		lock, err := lockDir(path)
		if err != nil {
			continue
		}
		clusters, _ := filepath.Glob(filepath.Join(path, "postgres-*", "data"))
		for _, data := range clusters {
			releaseSharedMemory(data)
		}
		os.RemoveAll(path)
		lock.Close()
	}
}
