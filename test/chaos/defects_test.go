package chaos

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/testservices"
	"github.com/aether-gateway/gateway/test/chaos/check"
)

// A gateway that spoils one message in so many is found out, each defect by its
// own rule; the same build without a defect is not reported. AETHER_TEST_LONG=1
// makes it one in 10,000.
func TestDefects(t *testing.T) {
	every, pace := 150, 10*time.Millisecond
	if os.Getenv("AETHER_TEST_LONG") != "" {
		every, pace = 10_000, time.Millisecond
	}
	for _, defect := range []struct {
		kind string
		rule check.Rule
	}{
		{"", ""},
		{"lose", check.Lost},
		{"double", check.Duplicated},
		{"reorder", check.Reordered},
		{"misdeliver", check.Foreign},
	} {
		t.Run(defect.kind, func(t *testing.T) {
			if every < 1000 {
				t.Parallel()
			}
			result := spoiled(t, spoiling{defect.kind, every}, pace, defect.rule)
			got := map[check.Rule]int{}
			for _, v := range result.Violations {
				got[v.Rule]++
			}
			if defect.rule == "" {
				if len(got) > 0 {
					t.Errorf("without a defect there are reports: %v\n%v", got, result.Violations[0])
				}
				return
			}
			if got[defect.rule] == 0 {
				t.Errorf("%d deliveries, and no report of %q: %v", result.Rows["exclusive"].Delivered, defect.rule, got)
			}
			t.Logf("%v", got)
		})
	}
}

// spoiling is what a gateway does to one message in so many.
type spoiling struct {
	kind  string
	every int
}

// spoiled runs the workload, without faults, on one gateway with a defect, until
// enough was delivered, or until that is reported which should be. What is lost
// is known only in the end.
func spoiled(t *testing.T, defect spoiling, pace time.Duration, rule check.Rule) *check.Result {
	t.Helper()
	rec := newRecorder()
	n := &node{
		tb: t, rec: rec, program: check1[string](t)(defective()), dir: t.TempDir(),
		grpc: testservices.FreePort(t), http: testservices.FreePort(t),
	}
	n.clients = faultproxy.New(t, local(n.grpc))
	n.args = []string{"dev", "--data-dir", t.TempDir(), "--grpc-addr", local(n.grpc), "--http-addr", local(n.http)}
	n.env = append([]string{"AETHER_JWT_KEY_FILE=" + keyFile(), fmt.Sprintf("AETHER_CHAOS_DEFECT=%s:%d", defect.kind, defect.every)}, settings...)
	t.Cleanup(n.finish)
	n.start()
	n.awaitReady(patience)
	w := newWorkload(t, rec, []*node{n}, 1, pace)
	t.Cleanup(w.cancel)
	w.start()
	tick := time.NewTicker(time.Duration(defect.every) * time.Millisecond)
	defer tick.Stop()
	limit := patience + time.Duration(defect.every)*30*time.Millisecond
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); <-tick.C {
		h := rec.history()
		if delivered(h) > 14*defect.every || rule != check.Lost && reported(h, rule) {
			break
		}
	}
	settle := 3 * time.Second // what a defect has kept back never comes
	if rule == "" {
		settle = patience
	}
	w.finish(settle)
	return check.Judge(rec.history())
}

// delivered counts the deliveries of a history.
func delivered(h check.History) int {
	n := 0
	for _, e := range h.Events {
		if e.Kind == check.Delivered {
			n++
		}
	}
	return n
}

func reported(h check.History, rule check.Rule) bool {
	return slices.ContainsFunc(check.Judge(h).Violations, func(v check.Violation) bool { return v.Rule == rule })
}
