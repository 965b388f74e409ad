package ops

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func get(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

var fakeMetrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "aether_ready 1\n") })

func TestPublicPortGivesNoReasons(t *testing.T) {
	t.Parallel()
	h := &Health{}
	h.Register("postgres", func(context.Context) error { return errors.New("db.internal refused") })
	h.Serving()
	public, operators := Public(h, fakeMetrics, Info{}, false), Operators(h, fakeMetrics)

	w := get(public, "GET", "/readyz")
	if w.Code != 503 || w.Body.String() != "not ready\n" {
		t.Errorf("public: %d %q", w.Code, w.Body)
	}
	if w = get(operators, "GET", "/readyz"); w.Code != 503 || w.Body.String() != "not ready\npostgres: db.internal refused\n" {
		t.Errorf("operators: %d %q", w.Code, w.Body)
	}
	if w = get(public, "GET", "/metrics"); w.Code != 404 {
		t.Errorf("public /metrics: %d", w.Code)
	}
	if w = get(operators, "GET", "/metrics"); w.Code != 200 {
		t.Errorf("operators /metrics: %d", w.Code)
	}
	if w = get(public, "GET", "/debug/goroutines"); w.Code != 404 {
		t.Errorf("public /debug/goroutines: %d", w.Code)
	}
	if w = get(operators, "GET", "/debug/goroutines"); w.Code != 200 || !strings.Contains(w.Body.String(), "TestPublicPortGivesNoReasons") {
		t.Errorf("operators /debug/goroutines: %d %q", w.Code, w.Body)
	}
	dev := Public(h, fakeMetrics, Info{}, true)
	if w = get(dev, "GET", "/readyz"); !strings.Contains(w.Body.String(), "refused") {
		t.Errorf("dev: %q", w.Body)
	}
	if w = get(dev, "GET", "/metrics"); w.Code != 200 {
		t.Errorf("dev /metrics: %d", w.Code)
	}
}

// What a dependency's client words may hold the password that it was given.
func TestReasonsHideSecrets(t *testing.T) {
	t.Parallel()
	h := &Health{}
	h.Hide("", "s3cret", "s3cret%2f")
	h.Register("postgres", func(context.Context) error { return errors.New("cannot dial postgres://u:s3cret%2f@db") })
	h.Register("log partition 2", func(context.Context) error { return errors.New("cannot be written: no") })
	h.Serving()
	w := get(Operators(h, fakeMetrics), "GET", "/readyz")
	if want := "not ready\npostgres: cannot dial postgres://u:***%2f@db\nlog partition 2: cannot be written: no\n"; w.Body.String() != want {
		t.Errorf("got %q", w.Body)
	}
	if last := h.Last(); len(last) != 2 || last[0].Err == nil || strings.Contains(last[0].Err.Error(), "s3cret") {
		t.Errorf("the last results are %v", last)
	}
}

func TestReadinessFollowsLife(t *testing.T) {
	t.Parallel()
	var changes []bool
	now := time.Unix(0, 0)
	h := &Health{OnChange: func(ready bool) { changes = append(changes, ready) }, clock: func() time.Time { return now }}
	var broken atomic.Bool
	h.Register("log", func(context.Context) error {
		if broken.Load() {
			return errors.New("away")
		}
		return nil
	})
	public := Public(h, fakeMetrics, Info{}, false)
	want := func(code int, when string) {
		t.Helper()
		if w := get(public, "GET", "/readyz"); w.Code != code {
			t.Errorf("%s: %d", when, w.Code)
		}
		if w := get(public, "GET", "/healthz"); w.Code != 200 {
			t.Errorf("%s: not alive: %d", when, w.Code)
		}
	}
	want(503, "before it serves")
	h.Serving()
	want(200, "serving")
	broken.Store(true)
	now = now.Add(checkAge)
	want(503, "log away")
	broken.Store(false)
	now = now.Add(checkAge)
	want(200, "log back")
	h.Drain()
	want(503, "draining, without waiting for a check to age")
	if len(changes) != 4 || changes[3] {
		t.Errorf("changes: %v", changes)
	}
}

func TestAskingOftenCostsNothing(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	h := &Health{clock: func() time.Time { return now }}
	var asked atomic.Int32
	h.Register("db", func(context.Context) error { asked.Add(1); return nil })
	h.Serving()
	for range 100 {
		h.Ready(t.Context())
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
	now = now.Add(checkAge)
	h.Ready(t.Context())
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times after the result aged", n)
	}
}

func TestOneAskerLeavingDoesNotSpoilTheAnswer(t *testing.T) {
	t.Parallel()
	h := &Health{}
	h.Register("db", func(ctx context.Context) error { return ctx.Err() })
	h.Register("panics", func(context.Context) error { panic("ouch") })
	h.Serving()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, results := h.Ready(ctx)
	if results[0].Err != nil {
		t.Errorf("db: %v", results[0].Err)
	}
	if results[1].Err == nil {
		t.Error("a check that panicked passed")
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	public := Public(&Health{}, fakeMetrics, Info{Version: "<v1>", Mode: "dev", GRPCAddr: "127.0.0.1:1"}, true)
	w := get(public, "GET", "/")
	if body := w.Body.String(); w.Code != 200 || !strings.Contains(body, "&lt;v1&gt;") || !strings.Contains(body, "127.0.0.1:1") {
		t.Errorf("%d %s", w.Code, body)
	}
	if w := get(public, "GET", "/other"); w.Code != 404 {
		t.Errorf("/other: %d", w.Code)
	}
	if w := get(public, "POST", "/"); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

func TestServer(t *testing.T) {
	t.Parallel()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := Serve(lis, Live())
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + lis.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	s.Close(t.Context())
	if s.Err() != nil {
		t.Error(s.Err())
	}
	if _, err := client.Get("http://" + lis.Addr().String()); err == nil {
		t.Error("still serving")
	}
}
