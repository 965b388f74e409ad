//go:build !race

package tracker_test

const raced = false
