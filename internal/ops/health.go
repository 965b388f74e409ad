package ops

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Check reports whether one dependency works: nil, or the reason why not. It
// must end when its context does.
type Check func(context.Context) error

const (
	// checkTimeout bounds one check. One that takes longer has failed.
	checkTimeout = 2 * time.Second
	// checkAge is how long a result is used again, so that asking often, which
	// anybody may do, costs the dependencies nothing.
	checkAge = 500 * time.Millisecond
)

// ErrDraining is the reason of a gateway that is shutting down.
var ErrDraining = errors.New("the gateway is shutting down")

// ErrStarting is the reason of a gateway that has not started yet.
var ErrStarting = errors.New("the gateway is starting")

// Result is what one check said.
type Result struct {
	Name string
	Err  error // nil if it works
}

// Health knows whether a gateway is ready: it has started, every check
// passes, and it is not shutting down. It is safe for concurrent use; the zero
// value is ready to use and has not started.
type Health struct {
	// OnChange, if set before use, is told of each change of readiness, from
	// the goroutine that noticed it.
	OnChange func(ready bool)

	mu      sync.Mutex
	names   []string
	checks  map[string]Check
	secrets []string
	phase   error // why not ready whatever the checks say; nil when serving
	serving bool
	was     bool

	asking  sync.Mutex // one round of checks at a time
	last    []Result
	lastEnd time.Time
	clock   func() time.Time
}

// Register adds a check. A name that is registered already is replaced.
func (h *Health) Register(name string, c Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.checks == nil {
		h.checks = map[string]Check{}
	}
	if _, ok := h.checks[name]; !ok {
		h.names = append(h.names, name)
	}
	h.checks[name] = c
}

// Unregister takes a check out. One that is not registered is no error.
func (h *Health) Unregister(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.checks, name)
	h.names = slices.DeleteFunc(h.names, func(n string) bool { return n == name })
}

// Hide sets texts, passwords say, that must not appear in a reason. It is for
// before the first use; an empty one is ignored. What cannot be excluded in what
// a dependency's client words is left out here.
func (h *Health) Hide(secrets ...string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range secrets {
		if s != "" {
			h.secrets = append(h.secrets, s)
		}
	}
}

// hide is err without secrets.
func (h *Health) hide(err error) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	hidden := text
	for _, s := range h.secrets {
		hidden = strings.ReplaceAll(hidden, s, "***")
	}
	if hidden == text {
		return err
	}
	return errors.New(hidden)
}

// Last returns what the checks said when they were asked last, without asking
// them; nothing before that.
func (h *Health) Last() []Result {
	h.asking.Lock()
	defer h.asking.Unlock()
	return h.last
}

// Serving says that the gateway has started: from now on the checks decide.
func (h *Health) Serving() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serving = true
}

// Drain says that the gateway is shutting down. It is not ready any more, at
// once and for good.
func (h *Health) Drain() {
	h.mu.Lock()
	h.phase = ErrDraining
	h.mu.Unlock()
	h.changed(false)
}

func (h *Health) state() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.phase == nil && !h.serving {
		return ErrStarting
	}
	return h.phase
}

// Ready reports whether the gateway is ready, and what each check said. While
// it drains the checks are not asked.
func (h *Health) Ready(ctx context.Context) (bool, []Result) {
	switch err := h.state(); {
	case errors.Is(err, ErrStarting):
		return false, append([]Result{{Name: "gateway", Err: err}}, h.ask(ctx)...)
	case err != nil:
		return false, []Result{{Name: "gateway", Err: err}}
	}
	results := h.ask(ctx)
	ready := true
	for _, r := range results {
		ready = ready && r.Err == nil
	}
	// It may have begun to drain meanwhile.
	if err := h.state(); err != nil {
		return false, []Result{{Name: "gateway", Err: err}}
	}
	h.changed(ready)
	return ready, results
}

func (h *Health) changed(ready bool) {
	h.mu.Lock()
	if h.phase != nil {
		ready = false
	}
	change := ready != h.was
	h.was = ready
	tell := h.OnChange
	h.mu.Unlock()
	if change && tell != nil {
		tell(ready)
	}
}

// ask runs all checks at once, or returns what they said a moment ago.
func (h *Health) ask(ctx context.Context) []Result {
	h.asking.Lock()
	defer h.asking.Unlock()
	now := h.clock
	if now == nil {
		now = time.Now
	}
	if h.last != nil && now().Sub(h.lastEnd) < checkAge {
		return h.last
	}
	h.mu.Lock()
	results := make([]Result, len(h.names))
	checks := make([]Check, len(h.names))
	for i, name := range h.names {
		results[i].Name, checks[i] = name, h.checks[name]
	}
	h.mu.Unlock()

	// The asker may leave; the answer is for others, too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for i := range checks {
		wg.Go(func() { results[i].Err = h.hide(run(ctx, checks[i])) })
	}
	wg.Wait()
	h.last, h.lastEnd = results, now()
	return results
}

func run(ctx context.Context, c Check) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("the check failed: %v", r)
		}
	}()
	err = c(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("no answer within %s", checkTimeout)
	}
	return err
}
