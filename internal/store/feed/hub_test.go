package feed

import (
	"testing"

	"github.com/aether-gateway/gateway/internal/store"
)

func told(changed <-chan struct{}) bool {
	select {
	case <-changed:
		return true
	default:
		return false
	}
}

func TestHub(t *testing.T) {
	t.Parallel()
	var h Hub
	h.Changed(store.SubjectRules) // nobody follows
	rules, stopRules := h.Follow(store.SubjectRules, store.SubjectKeys)
	all, stopAll := h.Follow()
	defer stopAll()
	if !told(rules) || !told(all) {
		t.Fatal("a follower does not begin with a value")
	}
	h.Changed()
	if told(rules) || told(all) {
		t.Fatal("told of nothing")
	}
	h.Changed(store.SubjectMembers)
	if told(rules) || !told(all) {
		t.Fatal("told of another subject, or not of one of all")
	}
	for range 3 {
		h.Changed(store.SubjectMembers, store.SubjectKeys)
	}
	if !told(rules) || told(rules) {
		t.Fatal("three changes that were not looked at are not one value")
	}
	h.Missed()
	if !told(rules) || !told(all) {
		t.Fatal("not told that something may have been missed")
	}
	stopRules()
	h.Changed(store.SubjectRules)
	h.Missed()
	if told(rules) || !told(all) {
		t.Fatal("told after the end")
	}
}
