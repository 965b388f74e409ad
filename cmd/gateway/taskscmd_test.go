package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/client"
)

// taskCommands has an operator follow, end and repeat a task of the gateway at
// an address, and end it for good.
func taskCommands(t *testing.T, dir, addr string) {
	t.Helper()
	token := strings.TrimSpace(succeed(t, nil, "token", "create", "--data-dir", dir, "--kind", "agent", "--workspace", "demo", "--impl", "boss", "--spec", "1"))
	boss, err := client.Connect(t.Context(), client.Options{Addr: addr, Token: token, Identity: client.Agent("demo", "boss", "1")})
	if err != nil {
		t.Fatal(err)
	}
	defer boss.Close(t.Context()) //nolint:errcheck // nothing of it is under way
	id, err := boss.CreateTask(t.Context(), client.TaskSpec{Pool: "nobody", Type: "review"})
	if err != nil {
		t.Fatal(err)
	}
	only := func(want string, attempt float64, args ...string) {
		t.Helper()
		rows := rowsOf(t, dir, append([]string{"tasks"}, args...)...)
		if len(rows) != 1 || rows[0]["task_id"] != id || rows[0]["task_type"] != "review" || rows[0]["status"] != want || rows[0]["attempt"] != attempt {
			t.Errorf("%v: %v", args, rows)
		}
	}
	only("queued", 1, "list", "--workspace", "demo", "--type", "review", "--status", "queued")
	only("queued", 1, "show", id)
	if out := succeed(t, nil, "tasks", "list", "--identity", boss.Address(), "--data-dir", dir); !strings.Contains(out, "CREATOR") || !strings.Contains(out, id) {
		t.Errorf("as a table: %s", out)
	}
	if rows := rowsOf(t, dir, "tasks", "list", "--status", "failed"); len(rows) != 0 {
		t.Errorf("none has failed: %v", rows)
	}
	create := []string{"tasks", "create", "--data-dir", dir, "--as", "us::clerk::cli", "--for", boss.Address(), "--type", "errand", "--text", "go", "--meta", "k=v", "--once", "errand 1"}
	made := strings.TrimSpace(succeed(t, nil, create...))
	if again := strings.TrimSpace(succeed(t, nil, create...)); again != made || made == "" {
		t.Errorf("created %q, then %q", made, again)
	}
	if task, err := boss.Task(t.Context(), made); err != nil || task.Creator != "us::clerk::cli" || task.Metadata["k"] != "v" || task.Type != "errand" || task.Worker != boss.Address() {
		t.Errorf("created by the command: %+v, %v", task, err)
	}
	failing(t, 2, "--for IDENTITY or --pool IMPLEMENTATION", "tasks", "create", "--data-dir", dir, "--as", "us::clerk::cli")
	failing(t, 2, "--for:", "tasks", "create", "--data-dir", dir, "--as", "us::clerk::cli", "--for", "nonsense")
	watch := begin(t, nil, "tasks", "watch", id, "--data-dir", dir)
	if line, err := watch.stdout.ReadString('\n'); err != nil || !strings.HasPrefix(line, "queued  attempt 1/1") {
		t.Errorf("watched: %q, %v", line, err)
	}
	failing(t, 1, "a task that is queued cannot be retried", "tasks", "retry", id, "--data-dir", dir)
	only("cancelled", 1, "cancel", id, "--reason", "for the test")
	last := ""
	for line, err := watch.stdout.ReadString('\n'); err == nil; line, err = watch.stdout.ReadString('\n') {
		last = line
	}
	if !strings.HasPrefix(last, "cancelled  ") || !strings.Contains(last, "for the test") {
		t.Errorf("watched at last: %q", last)
	}
	if code := <-watch.exit; code != 0 {
		t.Errorf("watch ended with %d\n%s", code, watch.stderr)
	}
	only("queued", 2, "retry", id)
	only("cancelled", 2, "cancel", id)
	failing(t, 1, "the task is cancelled: it has ended already", "tasks", "cancel", id, "--data-dir", dir)
	for _, command := range []string{"show", "watch", "retry", "cancel"} {
		failing(t, 1, "there is no such task", "tasks", command, "none", "--data-dir", dir)
	}
	failing(t, 2, "--limit must not be negative", "tasks", "list", "--limit=-1", "--data-dir", dir)
	failing(t, 2, fmt.Sprintf("%q", "lost"), "tasks", "list", "--status", "lost", "--data-dir", dir)
}
