package chaos

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/test/chaos/check"
)

// settleLimit is how long what waits may take to arrive when all is whole.
const settleLimit = 60 * time.Second

// TestRound breaks a deployment for as long as the flags say.
func TestRound(t *testing.T) {
	dir := logs(t)
	rec := newRecorder()
	d := deploy(t, rec, dir, *gatewaysFlag, *nodesFlag)
	t.Cleanup(d.end)
	w := newWorkload(t, rec, d.nodes, *seedFlag, *paceFlag)
	t.Cleanup(w.cancel)
	w.employ()
	w.start()
	faults, err := only(possible(*gatewaysFlag, *nodesFlag), *onlyFlag)
	must(t, err)
	began := time.Since(rec.start)
	steps := schedule(*seedFlag, *lengthFlag, faults)
	for i := range steps {
		steps[i].at += began
	}
	d.play(steps)
	for _, n := range d.nodes {
		n.awaitReady(patience)
	}
	linger := time.NewTimer(max(2*time.Second, began+*lengthFlag-time.Since(rec.start)))
	<-linger.C
	w.finish(settleLimit)

	h := rec.history()
	must(t, save(h, filepath.Join(dir, "history.txt"), filepath.Join(dir, "history.json")))
	result := check.Judge(h)
	t.Logf("seed %d, %d gateways, %d RabbitMQ nodes, %v of faults\n%s",
		*seedFlag, *gatewaysFlag, *nodesFlag, *lengthFlag, result.Table())
	report(t, h, result)
}

// logs returns a directory for logs and history. It stays if the test fails.
func logs(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "aether-chaos-") //nolint:usetesting // a failure leaves it
	must(t, err)
	t.Cleanup(func() {
		if !t.Failed() && !*keepFlag {
			must(t, os.RemoveAll(dir))
			return
		}
		t.Logf("seed %d; logs and history: %s", *seedFlag, dir)
	})
	return dir
}

// report fails the test for each violation, and tells the story of the first.
func report(t *testing.T, h check.History, result *check.Result) {
	t.Helper()
	if len(result.Violations) == 0 {
		return
	}
	var story strings.Builder
	for _, e := range check.Around(h, result.Violations[0]) {
		story.WriteString(e.String() + "\n")
	}
	t.Errorf("%d promises are broken; the history around the first, %v:\n%s", len(result.Violations), result.Violations[0], story.String())
	const most = 20
	for i, v := range result.Violations {
		if i == most {
			t.Errorf("and %d more", len(result.Violations)-most)
			break
		}
		t.Errorf("%8.3fs %v", h.Events[v.Event].At.Seconds(), v)
	}
}
