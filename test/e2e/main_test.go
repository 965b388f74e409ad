package e2e

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/testservices"
)

const (
	// patience is how long a test waits for what must come. It is far more than
	// a gateway needs: the race detector and all other tests share the machine.
	patience = 40 * time.Second
	// atOnce is the bound where the contract gives none but "at once".
	atOnce = 15 * time.Second
)

// program is the path of the built gateway.
var program string

func TestMain(m *testing.M) {
	if os.Getenv(readerVariable) != "" {
		os.Exit(readerMain())
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "aether-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := build(dir); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	// Most of these tests wait most of the time.
	if n := flag.Lookup("test.parallel"); n.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = n.Value.Set("6")
	}
	return testservices.Main(m)
}

// alone is what tests call instead of Parallel that measure how soon everything
// works again after a fault: it is promised of machines that have time for it.
func alone(testing.TB) {}

// build builds the gateway with the race detector and makes its signing key.
func build(dir string) error {
	program = filepath.Join(dir, "gateway")
	cmd := exec.Command("go", "build", "-race", "-o", program, "github.com/aether-gateway/gateway/cmd/gateway")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building the gateway: %w\n%s", err, bytes.TrimSpace(out))
	}
	keyFile = filepath.Join(dir, "key.hs256")
	return os.WriteFile(keyFile, []byte(secret+"\n"), 0o600)
}
