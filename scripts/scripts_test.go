package scripts

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bare makes a directory for PATH that holds the named programs only.
func bare(t *testing.T, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range programs {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSyntax(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range append(files, "../.ci/run") {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode()&0o111 == 0 {
			t.Errorf("%s is not executable", file)
		}
		head, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		shell := "sh"
		if strings.HasPrefix(string(head), "#!/bin/bash") {
			shell = "bash"
		}
		if out, err := exec.Command(shell, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", file, err, out)
		}
	}
}

func TestDepsIsContentWithThisMachine(t *testing.T) {
	t.Parallel()
	// The tests are running, so everything must be there.
	if out, err := exec.Command("./deps.sh").CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%s; want success in silence", err, out)
	}
}

// TestDepsSaysWhatIsMissing hides programs from the script on a machine without
// apt-get: it must fail and name the packages.
func TestDepsSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("./deps.sh")
	cmd.Env = []string{"PATH=" + bare(t, "sh", "id")}
	out, err := cmd.CombinedOutput()
	var failed *exec.ExitError
	if !errors.As(err, &failed) || failed.ExitCode() != 1 {
		t.Fatalf("%v; want exit code 1\n%s", err, out)
	}
	for _, want := range []string{"gcc", "libc6-dev", "rabbitmq-server", "redis-server", "haproxy", "apt-get install"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("does not mention %s:\n%s", want, out)
		}
	}
}

// TestTestStopsWithoutServers: the tests must not run, let alone pass, when
// what they need cannot be had.
func TestTestStopsWithoutServers(t *testing.T) {
	t.Parallel()
	cmd := exec.Command("./test.sh", "./internal/version")
	cmd.Env = []string{"PATH=" + bare(t, "sh", "id", "dirname", "env", "sed")}
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("succeeded:\n%s", out)
	}
	if strings.Contains(string(out), "ok ") {
		t.Errorf("ran tests:\n%s", out)
	}
}
