package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var keyTests = []test{
	{"NoKeys", noKeys},
	{"CreateKeys", createKeys},
	{"KeysOfOneName", keysOfOneName},
	{"RevokeKeys", revokeKeys},
	{"UseKeys", useKeys},
	{"KeyChanges", keyChanges},
	{"ExpireKeys", expireKeys},
	{"KeyTexts", keyTexts},
	{"KeysLast", keysLast},
	{"RaceOfKeys", raceOfKeys},
	{"KeysAreTold", keysAreTold},
}

// written leaves out the times that the store's own clock has set.
var written = cmp.Options{cmpopts.EquateEmpty(), cmpopts.IgnoreFields(store.APIKey{}, "CreatedAt", "RevokedAt"), cmpopts.IgnoreFields(store.Revocation{}, "At")}

func key(id string) store.APIKey {
	return store.APIKey{ID: id, Name: "name of " + id, Salt: []byte{0, 1, 255}, Hash: []byte(id), Claims: `{"kind":"agent"}`, CreatedBy: "op", ExpiresAt: sec(9)}
}

func (b *bench) createKey(keys ...store.APIKey) {
	b.t.Helper()
	for _, k := range keys {
		if err := b.s.CreateAPIKey(context.Background(), k); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) keys() []store.APIKey {
	b.t.Helper()
	all, err := b.s.APIKeys(context.Background())
	if err != nil {
		b.t.Fatal(err)
	}
	// In pages they are the same ones.
	var paged []store.APIKey
	for place := (store.KeyPlace{}); ; {
		page, err := b.s.APIKeysAfter(context.Background(), place, 2)
		if err != nil || len(page) > 2 {
			b.t.Fatalf("a page of 2 has %d keys: %v", len(page), err)
		}
		if len(page) == 0 {
			break
		}
		paged = append(paged, page...)
		last := page[len(page)-1]
		place = store.KeyPlace{CreatedAt: last.CreatedAt, ID: last.ID}
	}
	if diff := cmp.Diff(all, paged, cmpopts.EquateEmpty()); diff != "" {
		b.t.Errorf("in pages the keys are others:\n%s", diff)
	}
	return all
}

func (b *bench) keysChanged(after store.Cursor, limit int) ([]store.APIKey, store.Cursor) {
	b.t.Helper()
	list, next, err := b.s.APIKeyChanges(context.Background(), after, limit)
	if err != nil {
		b.t.Fatal(err)
	}
	return list, next
}

func noKeys(t *testing.T, b *bench) {
	if all := b.keys(); len(all) != 0 {
		t.Errorf("keys %v", all)
	}
	if list, next := b.keysChanged(0, 10); len(list) != 0 || next != 0 {
		t.Errorf("changes %v, next %v", list, next)
	}
	if err := b.s.RevokeAPIKey(context.Background(), "k", "op"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("revoked what is not there: %v", err)
	}
	if err := b.s.UseAPIKeys(context.Background(), []store.KeyUse{{ID: "k", At: sec(1)}}); err != nil {
		t.Error(err)
	}
	if err := b.s.UseAPIKeys(context.Background(), nil); err != nil {
		t.Error(err)
	}
}

func createKeys(t *testing.T, b *bench) {
	before := time.Now().Add(-time.Minute)
	lasting := key("b")
	lasting.ExpiresAt = time.Time{}
	b.createKey(key("a"), lasting)
	again := key("a")
	again.Hash, again.Name = []byte("another"), "another"
	b.createKey(again) // a repeat changes nothing
	all := b.keys()
	if diff := cmp.Diff([]store.APIKey{key("a"), lasting}, all, written); diff != "" {
		t.Error(diff)
	}
	for _, k := range all {
		if k.CreatedAt.Before(before) || k.CreatedAt.After(time.Now().Add(time.Minute)) || !k.RevokedAt.IsZero() || !k.UsedAt.IsZero() {
			t.Errorf("times of %+v", k)
		}
	}
}

// A name belongs to one good key at a time, also if several gateways make some.
func keysOfOneName(t *testing.T, b *bench) {
	ctx := context.Background()
	called := func(id string) store.APIKey {
		k := key(id)
		k.Name, k.ExpiresAt = "name", time.Time{}
		return k
	}
	over := called("over")
	over.ExpiresAt = time.Unix(1000, 0)
	b.createKey(over, called("a"))
	var taken *store.NameError
	if err := b.s.CreateAPIKey(ctx, called("b")); !errors.As(err, &taken) || *taken != (store.NameError{Name: "name", ID: "a"}) {
		t.Errorf("a second good one: %v", err)
	}
	b.createKey(called("a")) // a repeat
	if err := b.s.RevokeAPIKey(ctx, "a", "op"); err != nil {
		t.Fatal(err)
	}
	var made atomic.Int32
	var fns []func()
	for i := range 8 {
		fns = append(fns, func() {
			err := b.s.CreateAPIKey(ctx, called(fmt.Sprint("again ", i)))
			if err == nil {
				made.Add(1)
			} else if !errors.As(err, new(*store.NameError)) {
				t.Error(err)
			}
		})
	}
	together(fns...)
	if n := made.Load(); n != 1 {
		t.Errorf("%d good keys of one name", n)
	}
	b.createKey(called("a"), over) // repeats of what is over
}

func revokeKeys(t *testing.T, b *bench) {
	ctx := context.Background()
	b.createKey(key("a"), key("b"))
	for _, by := range []string{"op", "another"} {
		if err := b.s.RevokeAPIKey(ctx, "a", by); err != nil {
			t.Fatal(err)
		}
	}
	all := b.keys()
	if len(all) != 2 || all[0].RevokedAt.IsZero() || all[0].RevokedBy != "op" || !all[1].RevokedAt.IsZero() {
		t.Errorf("keys %+v", all)
	}
}

func useKeys(t *testing.T, b *bench) {
	ctx := context.Background()
	b.createKey(key("a"), key("b"))
	_, next := b.keysChanged(0, 10)
	for _, uses := range [][]store.KeyUse{
		{{ID: "a", At: sec(5)}, {ID: "none", At: sec(5)}, {ID: "a", At: sec(3)}},
		{{ID: "a", At: sec(4)}},
	} {
		if err := b.s.UseAPIKeys(ctx, uses); err != nil {
			t.Fatal(err)
		}
	}
	if all := b.keys(); !all[0].UsedAt.Equal(sec(5)) || !all[1].UsedAt.IsZero() {
		t.Errorf("keys %+v", all)
	}
	if list, _ := b.keysChanged(next, 10); len(list) != 0 {
		t.Errorf("a use is a change: %v", list)
	}
}

func keyChanges(t *testing.T, b *bench) {
	ctx := context.Background()
	for _, bad := range []store.Cursor{1, -1} {
		if _, _, err := b.s.APIKeyChanges(ctx, bad, 1); !errors.Is(err, store.ErrCursor) {
			t.Errorf("%d: %v, want ErrCursor", bad, err)
		}
	}
	b.createKey(key("a"), key("b"), key("c"))
	first, next := b.keysChanged(0, 2)
	if diff := cmp.Diff([]store.APIKey{key("a"), key("b")}, first, written); diff != "" {
		t.Error(diff)
	}
	second, next := b.keysChanged(next, 2)
	if diff := cmp.Diff([]store.APIKey{key("c")}, second, written); diff != "" {
		t.Error(diff)
	}
	if err := b.s.RevokeAPIKey(ctx, "a", "op"); err != nil {
		t.Fatal(err)
	}
	third, next := b.keysChanged(next, 2)
	if len(third) != 1 || third[0].ID != "a" || third[0].RevokedAt.IsZero() {
		t.Errorf("after the revocation: %+v", third)
	}
	if list, again := b.keysChanged(next, 2); len(list) != 0 || again != next {
		t.Errorf("changes %v, next %v", list, again)
	}
}

func expireKeys(t *testing.T, b *bench) {
	ctx := context.Background()
	over, never := key("1 over"), key("2 never")
	over.ExpiresAt, never.ExpiresAt = time.Unix(1000, 0), time.Time{}
	b.createKey(over, never, key("3 good"), key("4 revoked"))
	if err := b.s.RevokeAPIKey(ctx, "4 revoked", "op"); err != nil {
		t.Fatal(err)
	}
	if n, err := b.s.ExpireAPIKeys(ctx, time.Unix(1000, 0)); n != 0 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := b.s.ExpireAPIKeys(ctx, time.Now().Add(-time.Hour)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if n, err := b.s.ExpireAPIKeys(ctx, time.Now().Add(time.Hour)); n != 1 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	if diff := cmp.Diff([]store.APIKey{never, key("3 good")}, b.keys(), written); diff != "" {
		t.Error(diff)
	}
}

func keyTexts(t *testing.T, b *bench) {
	ctx := context.Background()
	for _, text := range odd {
		k := key(text)
		k.Name, k.CreatedBy, k.Claims = text, text, text
		b.createKey(k)
		if err := b.s.RevokeAPIKey(ctx, text, text); err != nil {
			t.Error(err)
		}
	}
	if n := len(b.keys()); n != len(odd) {
		t.Errorf("%d of %d", n, len(odd))
	}
	for _, bad := range []string{"a\x00b", "\xff"} {
		for what, change := range map[string]func(*store.APIKey){
			"id": func(k *store.APIKey) { k.ID = bad }, "name": func(k *store.APIKey) { k.Name = bad },
			"claims": func(k *store.APIKey) { k.Claims = bad }, "by": func(k *store.APIKey) { k.CreatedBy = bad },
		} {
			k := key("bad")
			change(&k)
			if err := b.s.CreateAPIKey(ctx, k); !errors.Is(err, store.ErrText) {
				t.Errorf("%s %q: %v, want ErrText", what, bad, err)
			}
		}
		for what, err := range map[string]error{
			"revoke": b.s.RevokeAPIKey(ctx, bad, "op"), "revoked by": b.s.RevokeAPIKey(ctx, "k", bad),
			"use": b.s.UseAPIKeys(ctx, []store.KeyUse{{ID: bad, At: sec(1)}}),
		} {
			if !errors.Is(err, store.ErrText) {
				t.Errorf("%s %q: %v, want ErrText", what, bad, err)
			}
		}
	}
}

func keysLast(t *testing.T, b *bench) {
	b.createKey(key("a"))
	_, next := b.keysChanged(0, 10)
	if err := b.s.Close(); err != nil {
		t.Fatal(err)
	}
	b.s = b.open()
	b.createKey(key("b"))
	list, _ := b.keysChanged(next, 10)
	if diff := cmp.Diff([]store.APIKey{key("b")}, list, written); diff != "" {
		t.Error(diff)
	}
}

// Of keys that several gateways create and revoke at the same time, a reader
// misses none.
func raceOfKeys(t *testing.T, b *bench) {
	ctx := context.Background()
	const gateways, each = 4, 8
	var fns []func()
	for g := range gateways {
		fns = append(fns, func() {
			for i := range each {
				id := fmt.Sprint(g, "-", i)
				if err := b.s.CreateAPIKey(ctx, key(id)); err != nil {
					t.Error(err)
				}
				if err := b.s.RevokeAPIKey(ctx, id, "op"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	revoked := map[string]bool{}
	fns = append(fns, func() {
		for cursor := store.Cursor(0); len(revoked) < gateways*each; {
			page, next, err := b.s.APIKeyChanges(ctx, cursor, 3)
			if err != nil || t.Failed() {
				t.Error(err)
				return
			}
			for _, k := range page {
				if !k.RevokedAt.IsZero() {
					revoked[k.ID] = true
				}
			}
			cursor = next
		}
	})
	together(fns...)
}

// keysAreTold: who follows keys is told of each change of keys and revocations.
func keysAreTold(t *testing.T, b *bench) {
	ctx := context.Background()
	changed, stop := b.s.Follow(store.SubjectKeys)
	defer stop()
	await(t, changed)
	b.createKey(key("a"))
	seen(t, changed, func() bool { return len(b.keys()) == 1 })
	if err := b.s.RevokeAPIKey(ctx, "a", "op"); err != nil {
		t.Fatal(err)
	}
	seen(t, changed, func() bool { return !b.keys()[0].RevokedAt.IsZero() })
	b.revoke(store.Revocation{What: store.RevokedToken, ID: "x"})
	seen(t, changed, func() bool {
		list, _ := b.revoked(0, 10)
		return len(list) == 1
	})
}
