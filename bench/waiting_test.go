package main

import (
	"strings"
	"testing"
	"time"
)

// feed lets a feeder send to a taker on the relay. The numbers are sent in
// their order; the taker waits for those after one and up to another.
func feed(t *testing.T, numbers []uint64, after, last uint64) (*taker, faults, faults) {
	t.Helper()
	s := startRelay(t)
	run := runs.Add(1)
	k, err := s.taker(t.Context(), "receiver", run, after, last, 8)
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := newTemplate(address("receiver"), 64, run, false)
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.feeder(t.Context(), "feeder", 3)
	if err != nil {
		t.Fatal(err)
	}
	type took struct {
		faults faults
		err    error
	}
	ended := make(chan took, 1)
	go func() {
		wrong, err := k.take(time.Minute)
		ended <- took{wrong, err}
	}()
	for _, number := range numbers {
		if err := f.send(t.Context(), tmpl, number); err != nil {
			t.Fatal(err)
		}
		if open := f.sent.Load() - f.answered.Load(); open > 3 {
			t.Errorf("%d sends are open", open)
		}
	}
	sends, err := f.leave(t.Context())
	if err != nil {
		t.Error(err)
	}
	of := <-ended
	if of.err != nil {
		t.Error(of.err)
	}
	return k, of.faults, sends
}

func TestFeedAndTake(t *testing.T) {
	t.Parallel()
	var numbers []uint64
	for n := uint64(1); n <= 500; n++ {
		numbers = append(numbers, n)
	}
	k, wrong, sends := feed(t, numbers, 0, 500)
	if wrong.any() || sends.any() || k.took != 500 {
		t.Errorf("%d messages; %v; %v", k.took, wrong, sends)
	}
	if !(k.began < k.open && k.open <= k.first && k.first <= k.end) {
		t.Errorf("began at %d, open at %d, first at %d, end at %d", k.began, k.open, k.first, k.end)
	}
}

func TestTakeSeesFaults(t *testing.T) {
	t.Parallel()
	if _, wrong, _ := feed(t, []uint64{1, 3, 2, 2, 6}, 0, 6); wrong != (faults{Lost: 2, Late: 1, Duplicates: 1}) {
		t.Error(wrong)
	}
	// One that was acknowledged in an earlier session.
	if _, wrong, _ := feed(t, []uint64{4, 5, 6}, 4, 6); wrong != (faults{Duplicates: 1}) {
		t.Error(wrong)
	}
}

// TestTakeEnds sees that who waits for what does not come says so.
func TestTakeEnds(t *testing.T) {
	t.Parallel()
	s := startRelay(t)
	k, err := s.taker(t.Context(), "receiver", 1, 0, 3, 8)
	if err != nil {
		t.Fatal(err)
	}
	if wrong, err := k.take(50 * time.Millisecond); err != nil || k.end != 0 || wrong != (faults{Lost: 3}) {
		t.Errorf("end at %d, %v, %v", k.end, wrong, err)
	}
}

func TestFeederWithoutServer(t *testing.T) {
	t.Parallel()
	s := startRelay(t)
	f, err := s.feeder(t.Context(), "feeder", 1)
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := newTemplate(address("nobody"), 64, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.send(t.Context(), tmpl, 1); err != nil {
		t.Fatal(err)
	}
	f.peer.stop() // the relay answers nothing to a send for nobody
	if err := f.send(t.Context(), tmpl, 2); err == nil {
		t.Error("a send is taken when the stream has ended")
	}
	if _, err := f.leave(t.Context()); err == nil || !strings.Contains(err.Error(), "the stream ended") {
		t.Error(err)
	}
}

func TestStrangersWithoutMail(t *testing.T) {
	t.Parallel()
	s := startRelay(t)
	st := &strangers{site: &site{}, load: load{Unacked: 8}, each: 5}
	o, err := st.come(t.Context(), s.target, 1, false)
	if err != nil || len(o.First) != 5 || len(o.Last) != 0 || o.Messages != 0 || o.Faults.any() {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestIdle(t *testing.T) {
	t.Parallel()
	s := startRelay(t)
	m := &mute{load: load{Unacked: 8}, idle: 20}
	if v, err := m.measureIdle(t.Context(), s.target, s.cpu[0].pid()); err != nil || v < 0 {
		t.Errorf("%v, %v", v, err)
	}
}
