package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/lmittmann/tint"
	"github.com/mattn/go-isatty"

	"github.com/aether-gateway/gateway/internal/config"
)

// newLogger logs to w: as text on a terminal and as JSON elsewhere, unless the
// configuration says which. Warnings that repeat are logged now and then.
func newLogger(w io.Writer, level, format string) *slog.Logger {
	var min slog.Level
	if err := min.UnmarshalText([]byte(level)); err != nil {
		min = slog.LevelInfo
	}
	terminal := isTerminal(w)
	if format == "text" || format == "auto" && terminal {
		return slog.New(newQuiet(tint.NewTextHandler(w, &tint.Options{Level: min, TimeFormat: time.TimeOnly, NoColor: !terminal, ReplaceAttr: readable})))
	}
	return slog.New(newQuiet(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: min, ReplaceAttr: readable})))
}

// readable writes durations as 1.6s, not as a number of nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && isatty.IsTerminal(f.Fd())
}

// logNotes tells of keys that were set and do nothing, and of signing keys that
// others can read.
func logNotes(log *slog.Logger, cfg *config.Config) {
	for _, n := range append(cfg.Notes(), exposedPasswords(cfg)...) {
		log.LogAttrs(context.Background(), slog.LevelWarn, "configuration: "+n.Text, slog.String("key", n.Key), slog.String("source", n.Source.String()))
	}
	for _, path := range exposed(keyFiles(cfg)) {
		log.Warn("configuration: "+exposedText(path), "key", "jwt.key_file")
	}
}
