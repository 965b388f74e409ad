package testservices

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// releaseSharedMemory removes the System V segment that a killed PostgreSQL
// server leaves behind: some bytes by which it would know that it is running,
// but the machine has only so many of them. The server notes its key and id in
// a file, which it removes when it ends in order.
func releaseSharedMemory(data string) {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return
	}
	lines := strings.Split(string(b), "\n")
	const keyAndID = 6
	if len(lines) <= keyAndID {
		return
	}
	fields := strings.Fields(lines[keyAndID])
	if len(fields) != 2 {
		return
	}
	id, err := strconv.Atoi(fields[1])
	if err != nil {
		return
	}
	// Ids are used again only after very many others; still, a segment that
	// somebody is attached to is another server's by now.
	if attached(id) {
		return
	}
	_, _, _ = syscall.Syscall(syscall.SYS_SHMCTL, uintptr(id), ipcRemove, 0)
}

const ipcRemove = 0 // IPC_RMID

// attached tells whether a process uses a segment, by the kernel's table.
func attached(id int) bool {
	b, err := os.ReadFile("/proc/sysvipc/shm")
	if err != nil {
		return true
	}
	for line := range strings.Lines(string(b)) {
		// key shmid perms size cpid lpid nattch ...
		fields := strings.Fields(line)
		if len(fields) > 6 && fields[1] == strconv.Itoa(id) {
			return fields[6] != "0"
		}
	}
	return true // no such segment: nothing to remove
}
