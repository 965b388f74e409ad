package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/ops"
)

const (
	// waitingTold is how often the log says what a gateway that starts waits for.
	waitingTold = 5 * time.Second
	// retryPause is between two tries to reach what does not answer yet.
	retryPause = time.Second
)

// dependency is something that a gateway waits for when it starts.
type dependency struct {
	check string // the name of its line in /readyz
	title string
	key   string // what configures it
}

var (
	onPostgres = dependency{"postgres", "PostgreSQL", "postgres.url"}
	onLog      = dependency{logCheck, "RabbitMQ", "rabbitmq.stream_url"}
	onRedis    = dependency{"redis", "Redis", "redis.url"}
	onFile     = dependency{logCheck, "the log", "data_dir"}
)

var errNotTried = errors.New("not asked yet")

// waits tells the log and /readyz what a gateway that starts waits for. It is
// safe for concurrent use.
type waits struct {
	log *slog.Logger
	// partitions is what the log is called: it is another thing in dev.
	partitions dependency

	mu    sync.Mutex
	state map[dependency]error // nil: it is there
	since map[dependency]time.Time
	told  map[dependency]time.Time
}

func newWaits(cfg *config.Config, log *slog.Logger) *waits {
	w := &waits{log: log, partitions: onFile, state: map[dependency]error{}, since: map[dependency]time.Time{}, told: map[dependency]time.Time{}}
	if cfg.Mode != config.Serve {
		return w
	}
	w.partitions = onLog
	w.state[onPostgres], w.state[onLog] = errNotTried, errNotTried
	if cfg.Redis.URL != "" {
		w.state[onRedis] = errNotTried
	}
	return w
}

// show gives each dependency its line in /readyz. When the gateway has its
// parts, their own checks take the places, and that of the log is taken out.
func (w *waits) show(h *ops.Health) {
	for _, d := range []dependency{onPostgres, onLog, onRedis} {
		if _, needed := w.state[d]; needed {
			h.Register(d.check, func(context.Context) error {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.state[d]
			})
		}
	}
}

// until repeats try as long as it fails with what may pass, and says so.
func (w *waits) until(ctx context.Context, d dependency, try func() error, passes func(error) bool) error {
	for {
		err := try()
		if err == nil {
			w.have(d)
			return nil
		}
		if !passes(err) || ctx.Err() != nil {
			return err
		}
		w.tell(d, err)
		pause := time.NewTimer(retryPause)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return err
		}
	}
}

// tell says, now and then, that something is waited for.
func (w *waits) tell(d dependency, reason error) {
	w.mu.Lock()
	now := time.Now()
	w.state[d] = reason
	began, again := w.since[d]
	if !again {
		began = now
		w.since[d] = now
	}
	due := now.Sub(w.told[d]) >= waitingTold
	if due {
		w.told[d] = now
	}
	w.mu.Unlock()
	if due {
		// The time makes each line another one: repeated ones would be left out.
		w.log.Warn("waiting for "+d.title, "key", d.key, "waited", now.Sub(began).Round(time.Second), "reason", reason)
	}
}

// have says that something that was waited for is there.
func (w *waits) have(d dependency) {
	w.mu.Lock()
	w.state[d] = nil
	began, waited := w.since[d]
	delete(w.since, d)
	delete(w.told, d)
	w.mu.Unlock()
	if waited {
		w.log.Info(d.title+" is there", "waited", time.Since(began).Round(time.Second))
	}
}
