package router

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// memoryStore is a store of positions that can fail.
type memoryStore struct {
	mu     sync.Mutex
	rows   map[string]store.Commit
	n      int
	broken bool
	gate   chan struct{} // if set, the next commit waits for it, and fails
	gated  chan struct{} // closed when it waits
}

var errBroken = errors.New("the store is broken")

func (m *memoryStore) Position(_ context.Context, _, address string) (uint64, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return 0, false, errBroken
	}
	row, ok := m.rows[address]
	return row.Position, ok, nil
}

func (m *memoryStore) PositionsOf(context.Context, string) ([]store.Position, error) { return nil, nil }

func (m *memoryStore) PositionsUnder(_ context.Context, prefix string) ([]store.Position, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []store.Position
	for _, row := range m.rows {
		if strings.HasPrefix(row.Address, prefix) {
			list = append(list, store.Position(row))
		}
	}
	return list, nil
}

func (m *memoryStore) Commit(_ context.Context, commits []store.Commit) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if gate := m.gate; gate != nil {
		m.gate = nil
		m.mu.Unlock()
		close(m.gated)
		<-gate
		m.mu.Lock()
		return errBroken
	}
	if m.broken {
		return errBroken
	}
	m.n++
	for _, c := range commits {
		if old, ok := m.rows[c.Address]; !ok || c.Position > old.Position {
			m.rows[c.Address] = c
		}
	}
	return nil
}

func (m *memoryStore) ExpirePositions(context.Context, time.Time) (int64, error) { return 0, nil }

func (m *memoryStore) at(address string) *store.Commit {
	m.mu.Lock()
	defer m.mu.Unlock()
	if row, ok := m.rows[address]; ok {
		return &row
	}
	return nil
}

func (m *memoryStore) calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n
}

func (m *memoryStore) fail(on bool) {
	m.mu.Lock()
	m.broken = on
	m.mu.Unlock()
}
