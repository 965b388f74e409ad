package testservices

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// state returns the letter by which the kernel describes a process.
func state(pid int) byte { return stateOf(fmt.Sprintf("/proc/%d/stat", pid)) }

// TestCrash kills a test binary that runs one of each and looks whether
// anything outlives it. A shell between the binary and the Erlang VM, or an
// epmd that made itself a daemon, would.
func TestCrash(t *testing.T) {
	t.Parallel()
	const role = "TESTSERVICES_CRASH"
	if os.Getenv(role) != "" {
		NewBroker(t)
		NewPostgres(t)
		Redis(t)
		fmt.Println("dir", root.path)
		_ = os.Stdout.Sync()
		select {} // until killed
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestCrash$", "-test.timeout=5m")
	tmp := t.TempDir()
	openUp(t, tmp)
	cmd.Env = append(os.Environ(), role+"=1", "TMPDIR="+tmp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var dir string
	var said []string
	for lines := bufio.NewScanner(out); dir == "" && lines.Scan(); {
		said = append(said, lines.Text())
		if path, ok := strings.CutPrefix(lines.Text(), "dir "); ok {
			dir = path
		}
	}
	if dir == "" {
		_ = cmd.Wait()
		t.Fatalf("the services did not start:\n%s", strings.Join(said, "\n"))
	}
	if len(mentioning(t, dir)) < 4 {
		t.Errorf("running below %s: %q; want RabbitMQ, epmd, PostgreSQL, Redis", dir, mentioning(t, dir))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for len(mentioning(t, dir)) > 0 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("outlived the test binary: %q", mentioning(t, dir))
		}
	}
	sweep(tmp)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("sweep left the directory of a crashed run: %v", err)
	}
}

// openUp lets other users pass through a test's temporary directory.
func openUp(t *testing.T, dir string) {
	t.Helper()
	for ; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// mentioning returns the command lines of the processes that work in dir or
// below.
func mentioning(t *testing.T, dir string) []string {
	t.Helper()
	found, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, entry := range found {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if err != nil || !strings.HasPrefix(cwd, dir) || state(pid) == 'Z' {
			continue
		}
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		lines = append(lines, strings.ReplaceAll(string(b), "\x00", " "))
	}
	return lines
}

func TestSweepKeepsTheLiving(t *testing.T) {
	t.Parallel()
	tmp := t.TempDir()
	mine := filepath.Join(tmp, dirPrefix+"mine")
	beingMade := filepath.Join(tmp, dirPrefix+"new")
	for _, dir := range []string{mine, beingMade} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	lock, err := lockDir(mine)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	sweep(tmp)
	for _, dir := range []string{mine, beingMade} {
		if _, err := os.Stat(dir); err != nil {
			t.Error(err)
		}
	}
}
