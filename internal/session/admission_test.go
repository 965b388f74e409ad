package session

import (
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func hintOf(t *testing.T, err error) time.Duration {
	t.Helper()
	for _, d := range status.Convert(err).Details() {
		if r, ok := d.(*errdetails.RetryInfo); ok {
			return r.GetRetryDelay().AsDuration()
		}
	}
	t.Fatalf("%v has no hint", err)
	return 0
}

// Of a crowd as many are let in as the rate says, and the others are told times
// that spread them over the seconds that follow.
func TestAdmission(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	a := newAdmission(10, func() time.Time { return now })
	for i := range 10 {
		if err := a.admit(); err != nil {
			t.Fatalf("session %d: %v", i, err)
		}
	}
	for i := range 100 {
		err := a.admit()
		if status.Code(err) != codes.ResourceExhausted {
			t.Fatalf("got %v", err)
		}
		turn := time.Duration(i+1) * time.Second / 10
		if hint := hintOf(t, err); hint < turn || hint > turn+turn/2+time.Millisecond {
			t.Errorf("the client that is %d places behind is told %v", i+1, hint)
		}
	}
	now = now.Add(500 * time.Millisecond)
	let := 0
	for range 100 {
		if a.admit() == nil {
			let++
		}
	}
	if let != 5 {
		t.Errorf("half a second later %d are let in", let)
	}
	for range 10_000 {
		_ = a.admit()
	}
	if hint := hintOf(t, a.admit()); hint > maxAdmissionWait*3/2 {
		t.Errorf("told %v", hint)
	}
	now = now.Add(time.Hour)
	for range 10 {
		if err := a.admit(); err != nil {
			t.Fatal(err)
		}
	}
	if a.admit() == nil {
		t.Error("time that has passed is saved up")
	}
	if err := newAdmission(0, time.Now).admit(); err != nil {
		t.Error(err)
	}
}
