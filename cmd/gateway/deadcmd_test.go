package main

import "testing"

// deadCommands tries the commands for dead letters where there are none.
func deadCommands(t *testing.T, dir string) {
	t.Helper()
	if rows := rowsOf(t, dir, "dead-letters", "list", "ag::demo::", "--reason", "rejected"); len(rows) != 0 {
		t.Errorf("dead letters: %v", rows)
	}
	failing(t, 2, "reason", "dead-letters", "list", "--reason", "nope", "--data-dir", dir)
	failing(t, 1, "there is no such dead letter", "dead-letters", "replay", "999999", "--data-dir", dir)
	failing(t, 1, "there is no such dead letter", "dead-letters", "purge", "999999", "--data-dir", dir)
	failing(t, 2, "one of them", "dead-letters", "purge", "--data-dir", dir)
	failing(t, 2, "one of them", "dead-letters", "purge", "1", "--all", "--data-dir", dir)
	if rows := rowsOf(t, dir, "dead-letters", "purge", "--all"); len(rows) != 1 || rows[0]["purged"] != 0.0 {
		t.Errorf("purged: %v", rows)
	}
}
