package chaos

import (
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/faultproxy"
	"github.com/aether-gateway/gateway/internal/testservices"
	"github.com/aether-gateway/gateway/test/chaos/check"
)

// A gateway that spoils one message in some hundred is found out, each defect
// by its own rule; the same build without a defect is not reported.
func TestDefects(t *testing.T) {
	for _, defect := range []struct {
		value string
		rule  check.Rule
	}{
		{"", ""},
		{"lose:150", check.Lost},
		{"double:150", check.Duplicated},
		{"reorder:150", check.Reordered},
		{"misdeliver:150", check.Foreign},
	} {
		t.Run(defect.value, func(t *testing.T) {
			t.Parallel()
			result := spoiled(t, defect.value)
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

// spoiled runs the workload, without faults, on one gateway with a defect.
func spoiled(t *testing.T, defect string) *check.Result {
	t.Helper()
	rec := newRecorder()
	n := &node{
		tb: t, rec: rec, program: check1[string](t)(defective()), dir: t.TempDir(),
		grpc: testservices.FreePort(t), http: testservices.FreePort(t),
	}
	n.clients = faultproxy.New(t, local(n.grpc))
	n.args = []string{"dev", "--data-dir", t.TempDir(), "--grpc-addr", local(n.grpc), "--http-addr", local(n.http)}
	n.env = append([]string{"AETHER_JWT_KEY_FILE=" + keyFile(), "AETHER_CHAOS_DEFECT=" + defect}, settings...)
	t.Cleanup(n.finish)
	n.start()
	n.awaitReady(patience)
	w := newWorkload(t, rec, []*node{n}, 1, 10*time.Millisecond)
	t.Cleanup(w.cancel)
	w.start()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); <-tick.C {
		if delivered(rec) > 2000 {
			break
		}
	}
	w.finish(3 * time.Second)
	return check.Judge(rec.history())
}

// delivered counts the deliveries so far.
func delivered(rec *recorder) int {
	rec.mu.Lock()
	defer rec.mu.Unlock()
	n := 0
	for _, e := range rec.events {
		if e.Kind == check.Delivered {
			n++
		}
	}
	return n
}
