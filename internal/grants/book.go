package grants

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

const (
	// pageSize is how many changes are asked for at once.
	pageSize = 1000
	// startAnewAfter is less than the time for which ended grants stay in the
	// store: a gateway that has not heard from it for so long makes its copy
	// anew, since it may have missed a revocation.
	startAnewAfter = store.GrantRest / 2
)

// book is the copy of the grants that the store keeps: of all that hold, and of
// those that ended lately. It has no more than the store may have.
type book struct {
	refreshing sync.Mutex // held by the one that refreshes

	mu     sync.RWMutex
	known  bool
	grants map[string]*held
	// bound are the grants that are to end with a session, by its id.
	bound  map[string]map[string]struct{}
	cursor store.Cursor
	asOf   time.Time // of the last refresh
	swept  time.Time // when what ended long ago was dropped
}

// put takes a grant into the copy. The lock is held.
func (b *book) put(h *held) {
	b.grants[h.ID] = h
	if h.AudienceType != audienceSession || !h.terms.WhileActive {
		return
	}
	if !h.RevokedAt.IsZero() {
		b.unbind(h)
		return
	}
	if b.bound[h.AudienceID] == nil {
		b.bound[h.AudienceID] = map[string]struct{}{}
	}
	b.bound[h.AudienceID][h.ID] = struct{}{}
}

func (b *book) unbind(h *held) {
	if of := b.bound[h.AudienceID]; of != nil {
		if delete(of, h.ID); len(of) == 0 {
			delete(b.bound, h.AudienceID)
		}
	}
}

// dropEvery is how often what ended long ago is dropped from the copy.
const dropEvery = time.Minute

// drop drops it. The lock is held.
func (b *book) drop(now time.Time) {
	if now.Sub(b.swept) < dropEvery {
		return
	}
	b.swept = now
	gone := now.Add(-store.GrantRest)
	for id, h := range b.grants {
		if h.ExpiresAt.Before(gone) || !h.RevokedAt.IsZero() && h.RevokedAt.Before(gone) {
			delete(b.grants, id)
			b.unbind(h)
		}
	}
}

// find returns a grant of the copy, or nil.
func (s *Service) find(id string) *held {
	s.book.mu.RLock()
	defer s.book.mu.RUnlock()
	return s.book.grants[id]
}

// refresh takes over what has changed in the store. Who revoked grants learns
// that they are by it.
func (s *Service) refresh(ctx context.Context) error {
	b := &s.book
	b.refreshing.Lock()
	defer b.refreshing.Unlock()
	now := s.o.Now()
	b.mu.RLock()
	anew, after := b.known && now.Sub(b.asOf) > startAnewAfter, b.cursor
	b.mu.RUnlock()
	if anew {
		after = 0
	}
	changes, next, err := s.changes(ctx, after)
	if errors.Is(err, store.ErrCursor) && after != 0 {
		// Another database, or an older state of it.
		anew = true
		changes, next, err = s.changes(ctx, 0)
	}
	if err != nil {
		return err
	}
	revoked := s.adopt(changes, anew)
	b.mu.Lock()
	b.known, b.cursor, b.asOf = true, next, now
	b.mu.Unlock()
	if len(revoked) > 0 {
		s.tellRevoked(revoked)
	}
	return nil
}

func (s *Service) changes(ctx context.Context, after store.Cursor) (all []store.Grant, next store.Cursor, err error) {
	for next = after; ; {
		var page []store.Grant
		if page, next, err = s.o.Store.GrantChanges(ctx, next, pageSize); err != nil {
			return nil, after, err
		}
		all = append(all, page...)
		if len(page) < pageSize {
			return all, next, nil
		}
	}
}

// adopt puts changes into the copy, in the place of all of it if anew, and
// returns what was known to hold and does not any more.
func (s *Service) adopt(changes []store.Grant, anew bool) (revoked []*held) {
	compiled := make([]*held, 0, len(changes))
	for _, g := range changes {
		h, err := hold(g)
		if err != nil {
			// It must not stay as it was.
			s.o.Logger.Error("a grant in the database cannot be read, and is refused", "grant", g.ID, "error", err)
			h = &held{Grant: g, unreadable: true}
			h.void.Store(true)
		} else {
			h.void.Store(s.isVoid(h))
		}
		compiled = append(compiled, h)
	}
	s.book.mu.Lock()
	defer s.book.mu.Unlock()
	old := s.book.grants
	if anew || old == nil {
		s.book.grants, s.book.bound = make(map[string]*held, len(compiled)), map[string]map[string]struct{}{}
	}
	for _, h := range compiled {
		if was := old[h.ID]; was != nil && was.RevokedAt.IsZero() && !h.RevokedAt.IsZero() {
			revoked = append(revoked, h)
		}
		s.book.put(h)
	}
	s.book.drop(s.o.Now())
	return revoked
}

// isVoid reports whether what a grant was made with has been revoked.
func (s *Service) isVoid(h *held) bool {
	return s.o.Revoked != nil && h.terms.Proof != nil && s.o.Revoked(h.terms.Proof, h.terms.As)
}

// settleAfter is how old a grant is before it is revoked for ever because of what
// it was made with: an API key that this gateway has not heard of may be newer
// than what it knows.
const settleAfter = 30 * time.Second

// Recheck looks which grants were made with something that counts no more. It is
// called when that may have changed, and from time to time. Those grants do not
// hold from then on, and soon are revoked.
func (s *Service) Recheck() {
	s.book.mu.RLock()
	var gone []string
	now := s.o.Now()
	for id, h := range s.book.grants {
		if h.unreadable || !h.RevokedAt.IsZero() || !now.Before(h.ExpiresAt) {
			continue
		}
		void := s.isVoid(h)
		h.void.Store(void)
		if void && now.Sub(h.CreatedAt) > settleAfter {
			gone = append(gone, id)
		}
	}
	s.book.mu.RUnlock()
	if len(gone) == 0 {
		return
	}
	s.later(func(ctx context.Context) { s.revokeAll(ctx, gone, "the credential that it was made with was revoked") })
}

// revokeAll revokes grants on nobody's demand. If it fails, they do not hold on
// this gateway all the same, and a later sweep tries again.
func (s *Service) revokeAll(ctx context.Context, ids []string, reason string) {
	if len(ids) == 0 {
		return
	}
	if _, err := s.o.Store.RevokeGrants(ctx, ids, "", reason); err != nil {
		if ctx.Err() == nil {
			s.o.Logger.Warn("grants could not be revoked; it is tried again", "grants", len(ids), "reason", reason, "error", err)
		}
		return
	}
	_ = s.refresh(ctx) // else the feed does it
}

// lookPause is the least between two looks for grants that the copy does not have.
const lookPause = 50 * time.Millisecond

// Look refreshes the copy, and returns nil when it is as new as the call: what it
// does not have then does not exist.
func (s *Service) Look(ctx context.Context) error { return s.looks.Look(ctx) }
