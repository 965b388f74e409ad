package main

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// sayAgain is how often a warning that comes again and again, word for word,
	// is logged.
	sayAgain = 10 * time.Second
	// maxSaid bounds how many warnings are remembered; when there are more, all
	// are forgotten, which costs a few lines.
	maxSaid = 256
)

// quiet is a log handler that leaves out warnings and errors that are equal, in
// all that they say, to one of the last ten seconds. The next one that is logged
// says how many were left out.
type quiet struct {
	slog.Handler
	context string // attributes and groups of the logger
	said    *said
}

// said is what was logged lately. Safe for concurrent use.
type said struct {
	mu    sync.Mutex
	texts map[string]*saying
}

type saying struct {
	at      time.Time
	leftOut int
}

func newQuiet(h slog.Handler) slog.Handler {
	return &quiet{Handler: h, said: &said{texts: map[string]*saying{}}}
}

func (q *quiet) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		leftOut, say := q.said.say(q.text(r), r.Time)
		if !say {
			return nil
		}
		if leftOut > 0 {
			r = r.Clone()
			r.AddAttrs(slog.Int("left_out", leftOut))
		}
	}
	return q.Handler.Handle(ctx, r)
}

// text is all that a record says, but for its time.
func (q *quiet) text(r slog.Record) string {
	var b strings.Builder
	b.WriteString(q.context + "\x00" + r.Level.String() + "\x00" + r.Message)
	r.Attrs(func(a slog.Attr) bool {
		b.WriteString("\x00" + a.String())
		return true
	})
	return b.String()
}

func (s *said) say(text string, at time.Time) (leftOut int, say bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, known := s.texts[text]
	switch {
	case known && at.Sub(last.at) < sayAgain:
		last.leftOut++
		return 0, false
	case known:
		leftOut = last.leftOut
	case len(s.texts) >= maxSaid:
		clear(s.texts)
	}
	s.texts[text] = &saying{at: at}
	return leftOut, true
}

func (q *quiet) WithAttrs(attrs []slog.Attr) slog.Handler {
	context := q.context
	for _, a := range attrs {
		context += "\x00" + a.String()
	}
	return &quiet{q.Handler.WithAttrs(attrs), context, q.said}
}

func (q *quiet) WithGroup(name string) slog.Handler {
	return &quiet{q.Handler.WithGroup(name), q.context + "\x00" + name, q.said}
}
