package main

import (
	"context"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/config"
)

type storedPlacement struct{ stored string }

func (s *storedPlacement) SettlePlacement(_ context.Context, own string) (string, error) {
	if s.stored == "" {
		s.stored = own
	}
	return s.stored, nil
}

func (s *storedPlacement) ReplacePlacement(context.Context, string, string) (bool, error) {
	return false, nil
}

// A deployment whose number of partitions was changed once started and did not
// find the messages that were stored before.
func TestC9Placement(t *testing.T) {
	t.Parallel()
	var s storedPlacement
	cfg := &config.Config{}
	cfg.Streams.Partitions = 4
	for range 2 {
		if err := settlePlacement(context.Background(), cfg, &s); err != nil {
			t.Fatal(err)
		}
	}
	cfg.Streams.Partitions = 8
	if err := settlePlacement(context.Background(), cfg, &s); err == nil || !strings.Contains(err.Error(), "stored with 4 partitions and 0 placement rules") {
		t.Fatalf("got %v", err)
	}
}
