package ops

import (
	"fmt"
	"net/http"
	"runtime/pprof"
	"strings"
)

// Live answers that the process is alive.
func Live() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		text(w, http.StatusOK, "alive\n")
	})
}

// Readyz answers 200 or 503: one word, or, with reasons, a line for each
// check.
func (h *Health) Readyz(reasons bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ready, results := h.Ready(r.Context())
		status, word := http.StatusOK, "ready\n"
		if !ready {
			status, word = http.StatusServiceUnavailable, "not ready\n"
		}
		if reasons {
			var b strings.Builder
			b.WriteString(word)
			for _, res := range results {
				state := "ok"
				if res.Err != nil {
					state = strings.ReplaceAll(res.Err.Error(), "\n", "; ")
				}
				fmt.Fprintf(&b, "%s: %s\n", res.Name, state)
			}
			word = b.String()
		}
		text(w, status, word)
	})
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// Public is the HTTP port: the start page, /healthz and /readyz without
// reasons. With dev set it has /readyz with reasons and the metrics as well,
// since under dev there is no other listener.
func Public(h *Health, metrics http.Handler, info Info, dev bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /{$}", page(info))
	mux.Handle("GET /healthz", Live())
	mux.Handle("GET /readyz", h.Readyz(dev))
	if dev {
		mux.Handle("GET /metrics", metrics)
	}
	return mux
}

// Operators is the operators' listener: everything, with reasons.
func Operators(h *Health, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", Live())
	mux.Handle("GET /readyz", h.Readyz(true))
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /debug/goroutines", goroutines)
	return mux
}

// goroutines lists what the gateway is busy with or waits for, those with the
// same stack together: what has piled up, if anything has. It names functions
// and lines, never data.
func goroutines(w http.ResponseWriter, _ *http.Request) {
	var b strings.Builder
	_ = pprof.Lookup("goroutine").WriteTo(&b, 1)
	text(w, http.StatusOK, b.String())
}
