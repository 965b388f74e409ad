package main

import (
	"testing"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
)

func TestProgressText(t *testing.T) {
	t.Parallel()
	for want, u := range map[string]*adminv1.StoredProgress{
		"  0 %": {},
		" 50 %  task t  running  step 1 of 2  prepare  half⏎done  (for us::ada)": {
			Completion: 0.5, TaskId: "t", State: "running", StepNumber: 1, TotalSteps: 2, Step: "prepare", Summary: "half\ndone", Recipient: "us::ada",
		},
	} {
		if got := progressText(u); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
