package router

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// Readiness names the partition and what is wrong with it.
func TestHealthNamesThePartition(t *testing.T) {
	t.Parallel()
	w := setup(t)
	says := func(text string) {
		t.Helper()
		w.until(func() (bool, <-chan struct{}) {
			wait := make(chan struct{})
			time.AfterFunc(10*time.Millisecond, func() { close(wait) })
			err := w.r.Check(context.Background())
			if text == "" || err == nil {
				return text == "" && err == nil, wait
			}
			return errors.Is(err, ErrUnready) && strings.Contains(err.Error(), text), wait
		})
	}
	says("")
	w.log.Refuse(true)
	w.log.Drop()
	says("partition 0 of the log cannot be written: ")
	says("cannot be read: ")
	if h := w.r.Health(); h.Unwritable != 1 || h.Unreadable != 1 {
		t.Errorf("%+v", h)
	}
	w.log.Refuse(false)
	says("")
	if h := w.r.Health(); h.Unwritable != 0 || h.Unreadable != 0 {
		t.Errorf("%+v", h)
	}
}
