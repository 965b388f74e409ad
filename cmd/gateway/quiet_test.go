package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestQuiet(t *testing.T) {
	t.Parallel()
	var out buffer
	h := newLogger(&out, "info", "json").Handler()
	start := time.Now()
	log := func(h slog.Handler, after time.Duration, level slog.Level, text string, attrs ...slog.Attr) {
		r := slog.NewRecord(start.Add(after), level, text, 0)
		r.AddAttrs(attrs...)
		if err := h.Handle(context.Background(), r); err != nil {
			t.Error(err)
		}
	}
	refused := slog.Any("error", errors.New("refused"))
	for n := range 25 {
		log(h, time.Duration(n)*time.Second, slog.LevelWarn, "waiting", refused)
	}
	log(h, 25*time.Second, slog.LevelWarn, "waiting", slog.Any("error", errors.New("reset")))
	log(h, 25*time.Second, slog.LevelError, "waiting", refused)
	log(h.WithAttrs([]slog.Attr{slog.Int("partition", 1)}), 25*time.Second, slog.LevelWarn, "waiting", refused)
	log(h.WithGroup("g"), 25*time.Second, slog.LevelWarn, "waiting", refused)
	log(h, 25*time.Second, slog.LevelInfo, "hello", slog.Duration("pause", 1600*time.Millisecond))
	log(h, 25*time.Second, slog.LevelInfo, "hello")
	text := out.String()
	if strings.Count(text, "\n") != 9 || strings.Count(text, `"left_out":9`) != 2 || strings.Count(text, "hello") != 2 || !strings.Contains(text, `"pause":"1.6s"`) {
		t.Errorf("logged:\n%s", text)
	}

	// What it remembers is bounded.
	for n := range 3 * maxSaid {
		log(h, 0, slog.LevelWarn, fmt.Sprint(n))
	}
	if n := len(h.(*quiet).said.texts); n > maxSaid {
		t.Errorf("%d texts are remembered", n)
	}
}
