package delivery_test

import "testing"

func TestTrackedVectors(t *testing.T) {
	t.Parallel()
	runScenarios(t, "tracked", newTopics)
}
