package chaos

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/testservices"
)

var (
	seedFlag     = flag.Uint64("chaos.seed", 1, "draws the faults and the clients' whims")
	lengthFlag   = flag.Duration("chaos.length", 15*time.Second, "how long faults are made")
	gatewaysFlag = flag.Int("chaos.gateways", 2, "number of gateways")
	nodesFlag    = flag.Int("chaos.nodes", 1, "number of RabbitMQ nodes, 1 or 3")
	paceFlag     = flag.Duration("chaos.pace", 25*time.Millisecond, "pause between two messages of a sender")
	onlyFlag     = flag.String("chaos.only", "", "regular expression of the faults to make, of \"kind target\"")
	keepFlag     = flag.Bool("chaos.keep", false, "keep the directory of a round that went well, too")
)

// patience ends a wait for what must come. The race detector and other tests
// share the machine.
const patience = 60 * time.Second

// secret signs all tokens. It protects nothing.
const secret = "a secret of tests, which protects nothing at all"

// work is a directory for what is built.
var work string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if work, err = os.MkdirTemp("", "aether-chaos-build-"); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(keyFile(), []byte(secret+"\n"), 0o600); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	return testservices.Main(m)
}

func keyFile() string { return filepath.Join(work, "key.hs256") }

// plain is the gateway as it is, and defective the one that spoils messages,
// both with the race detector.
var (
	plain     = sync.OnceValues(func() (string, error) { return build("gateway", "-race") })
	defective = sync.OnceValues(func() (string, error) { return build("defective", "-race", "-tags", "chaosdefect") })
)

func build(name string, flags ...string) (string, error) {
	program := filepath.Join(work, name)
	args := append(append([]string{"build", "-o", program}, flags...), "github.com/aether-gateway/gateway/cmd/gateway")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the gateway: %w\n%s", err, bytes.TrimSpace(out))
	}
	return program, nil
}

func check1[T any](tb testing.TB) func(v T, err error) T {
	tb.Helper()
	return func(v T, err error) T {
		tb.Helper()
		must(tb, err)
		return v
	}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
