package router

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// memoryStore is a store of positions, notes and marks that can fail.
type memoryStore struct {
	mu     sync.Mutex
	rows   map[string]store.Commit
	notes  map[string]uint64
	marks  map[string]memoryMark
	n      int
	broken bool
	gate   chan struct{} // if set, the next commit waits for it, and fails
	gated  chan struct{} // closed when it waits

	noting     func([]store.Note) // called with each statement, before it
	statements int                // for notes
	noteGate   chan struct{}      // if set, statements for notes wait for it
	raised     []store.Raise
	expired    []time.Time
	touched    []store.Session
	counted    map[string]int64 // notes, by workspace
	now        func() time.Time
}

type memoryMark struct {
	mark  store.Mark // of the last session, or of the one before a running one
	epoch uint64
	begun bool
}

func newMemoryStore() *memoryStore {
	return &memoryStore{rows: map[string]store.Commit{}, notes: map[string]uint64{}, marks: map[string]memoryMark{}, now: time.Now}
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

func (m *memoryStore) PositionsOf(_ context.Context, identity string) (list []store.Position, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, row := range m.rows {
		if row.Identity == identity {
			list = append(list, store.Position(row))
		}
	}
	return list, nil
}

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
	return m.commit(commits)
}

func (m *memoryStore) commit(commits []store.Commit) error {
	if m.broken {
		return errBroken
	}
	m.n++
	for _, c := range commits {
		old, ok := m.rows[c.Address]
		if ok && c.Epoch < old.Epoch || c.Epoch < m.marks[c.Address].epoch {
			continue
		}
		if !ok || c.Position > old.Position {
			m.rows[c.Address] = c
		}
	}
	return nil
}

func (m *memoryStore) RewindPositions(_ context.Context, to []store.Commit) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return errBroken
	}
	for _, c := range to {
		if row, ok := m.rows[c.Address]; ok && row.Epoch <= c.Epoch && c.Position < row.Position {
			row.Position = c.Position
			m.rows[c.Address] = row
		}
	}
	return nil
}

func (m *memoryStore) CommitClean(_ context.Context, commits []store.Commit) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.commit(commits); err != nil {
		return err
	}
	for _, c := range commits {
		if c.Epoch >= m.marks[c.Address].epoch {
			at := time.UnixMilli(m.now().UnixMilli())
			m.marks[c.Address] = memoryMark{mark: store.Mark{Clean: true, Position: c.Position, At: at}, epoch: c.Epoch}
		}
	}
	return nil
}

func (m *memoryStore) BeginSession(_ context.Context, s store.Session) (store.Mark, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return store.Mark{}, errBroken
	}
	old := m.marks[s.Address]
	if s.Epoch < old.epoch {
		return store.Mark{}, store.ErrFenced
	}
	before := old.mark
	if old.begun && old.epoch != s.Epoch {
		before = store.Mark{}
	}
	m.marks[s.Address] = memoryMark{mark: before, epoch: s.Epoch, begun: true}
	return before, nil
}

func (m *memoryStore) TouchSessions(_ context.Context, sessions []store.Session) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.touched = append(m.touched, sessions...)
	return nil
}

func (m *memoryStore) Mark(_ context.Context, _, address string) (store.Mark, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if k := m.marks[address]; !k.begun {
		return k.mark, nil
	}
	return store.Mark{}, nil
}

func (m *memoryStore) NoteAbsence(ctx context.Context, notes []store.Note) ([]uint64, error) {
	m.mu.Lock()
	noting, gate := m.noting, m.noteGate
	m.statements++
	m.mu.Unlock()
	if noting != nil {
		noting(notes)
	}
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return nil, errBroken
	}
	list := make([]uint64, len(notes))
	for i, n := range notes {
		if old, ok := m.notes[n.Address]; !ok || n.Position < old {
			m.notes[n.Address] = n.Position
		}
		list[i] = m.notes[n.Address]
	}
	return list, nil
}

func (m *memoryStore) Note(_ context.Context, address string) (uint64, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return 0, false, errBroken
	}
	position, ok := m.notes[address]
	return position, ok, nil
}

func (m *memoryStore) RaiseNotes(_ context.Context, raises []store.Raise) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return 0, errBroken
	}
	n := int64(0)
	for _, r := range raises {
		if old, ok := m.notes[r.Address]; ok && old == r.From && r.To > r.From {
			m.notes[r.Address] = r.To
			m.raised = append(m.raised, r)
			n++
		}
	}
	return n, nil
}

func (m *memoryStore) DeleteNotes(_ context.Context, notes []store.Note) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.broken {
		return 0, errBroken
	}
	n := int64(0)
	for _, note := range notes {
		if old, ok := m.notes[note.Address]; ok && old == note.Position {
			delete(m.notes, note.Address)
			n++
		}
	}
	return n, nil
}

func (m *memoryStore) ExpirePositions(_ context.Context, before time.Time) (int64, error) {
	return m.expire(before)
}

func (m *memoryStore) ExpireNotes(_ context.Context, before time.Time) (int64, error) {
	return m.expire(before)
}

func (m *memoryStore) ExpireMarks(_ context.Context, before time.Time) (int64, error) {
	return m.expire(before)
}

func (m *memoryStore) expire(before time.Time) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expired = append(m.expired, before)
	return 0, nil
}

func (m *memoryStore) CountNotes(context.Context) (map[string]int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.counted, nil
}
func (m *memoryStore) CountMarks(context.Context) (map[string]int64, error) { return nil, nil }

func (m *memoryStore) at(address string) *store.Commit {
	m.mu.Lock()
	defer m.mu.Unlock()
	if row, ok := m.rows[address]; ok {
		return &row
	}
	return nil
}

func (m *memoryStore) noteOf(address string) (uint64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	position, ok := m.notes[address]
	return position, ok
}

// noteStatements returns how many statements for notes have come.
func (m *memoryStore) noteStatements() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.statements
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

// set changes the store under its lock.
func (m *memoryStore) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}
