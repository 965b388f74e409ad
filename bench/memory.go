package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// memoryOf returns the memory in bytes that is resident and not of a file: what
// a process has allocated, without the pages of its program that it happens to
// have touched.
func memoryOf(pid int) (uint64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parseStatus(b)
}

// parseStatus reads RssAnon of a status file.
func parseStatus(b []byte) (uint64, error) {
	for line := range strings.Lines(string(b)) {
		rest, ok := strings.CutPrefix(line, "RssAnon:")
		if !ok {
			continue
		}
		words := strings.Fields(rest)
		if len(words) != 2 || words[1] != "kB" {
			return 0, fmt.Errorf("bench: a status file says RssAnon:%q", strings.TrimSpace(rest))
		}
		n, err := strconv.ParseUint(words[0], 10, 53)
		return n << 10, err
	}
	return 0, errors.New("bench: a status file has no RssAnon")
}

const (
	settleEvery = 200 * time.Millisecond
	settleSame  = 5  // looks
	settleMost  = 75 // looks
)

// settledMemory waits until a process's memory does not change any more, and
// returns it. One that never rests is taken as it is after a while.
func settledMemory(ctx context.Context, pid int) (uint64, error) {
	tick := time.NewTicker(settleEvery)
	defer tick.Stop()
	var s settling
	for {
		n, err := memoryOf(pid)
		if err != nil || s.see(n) {
			return n, err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
	}
}

// settling decides when a value has come to rest.
type settling struct {
	from       uint64
	same, seen int
}

// see takes the next value, and reports whether it is the last.
func (s *settling) see(n uint64) bool {
	s.seen++
	if differ := max(n, s.from) - min(n, s.from); differ > s.from/200 {
		s.from, s.same = n, 0
	}
	s.same++
	return s.same >= settleSame || s.seen >= settleMost
}

// perSession is the growth of a process's memory by so many sessions. What
// shrinks has grown by nothing.
func perSession(before, after uint64, sessions int) float64 {
	return ratio(float64(after-min(before, after)), float64(sessions))
}

func kibibytes(v float64) string { return fmt.Sprintf("%.0f KiB", v/1024) }
