package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// usage is the CPU time that processes have used, by role.
type usage map[string]time.Duration

func usageOf(list []process) usage {
	u := usage{}
	for _, p := range list {
		if used, err := cpuTime(p.pid()); err == nil {
			u[p.role] += used
		}
	}
	return u
}

// since returns what the processes have used since u was taken.
func (u usage) since(list []process) map[string]time.Duration {
	used := usageOf(list)
	for role := range used {
		used[role] -= u[role]
	}
	return used
}

// cpuTime returns the CPU time, user and system, that a process has used. The
// kernel counts it in ticks of 10 ms.
func cpuTime(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseStat(b)
}

// parseStat reads the 14th and 15th field of a stat file. The second, the
// name in brackets, may hold spaces and brackets.
func parseStat(b []byte) (time.Duration, error) {
	const afterName, user, system = 2, 13, 14 // counted from 0
	const tick = 10 * time.Millisecond
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) <= system-afterName {
		return 0, fmt.Errorf("bench: a stat file has %d fields", len(fields))
	}
	var sum time.Duration
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(string(fields[i-afterName]), 10, 64)
		if err != nil {
			return 0, err
		}
		sum += time.Duration(n) * tick
	}
	return sum, nil
}
