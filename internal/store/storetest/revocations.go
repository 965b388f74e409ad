package storetest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/go-cmp/cmp"
)

var revocationTests = []test{
	{"Revoke", revoke},
	{"RevokeAgain", revokeAgain},
	{"RevokeRefusals", revokeRefusals},
	{"RevocationChanges", revocationChanges},
	{"ExpireRevocations", expireRevocations},
}

func (b *bench) revoke(list ...store.Revocation) {
	b.t.Helper()
	for _, r := range list {
		if err := b.s.Revoke(context.Background(), r); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) revoked(after store.Cursor, limit int) ([]store.Revocation, store.Cursor) {
	b.t.Helper()
	list, next, err := b.s.RevocationChanges(context.Background(), after, limit)
	if err != nil {
		b.t.Fatal(err)
	}
	return list, next
}

func revoke(t *testing.T, b *bench) {
	if list, next := b.revoked(0, 10); len(list) != 0 || next != 0 {
		t.Errorf("changes %v, next %v", list, next)
	}
	before := time.Now().Add(-time.Minute)
	want := []store.Revocation{
		{What: store.RevokedToken, ID: "x", Until: sec(5), Reason: "lost", By: "op"},
		{What: store.RevokedSubject, ID: "x", Before: sec(1)},
		{What: store.RevokedUser, ID: "x", Before: sec(2), Until: sec(9)},
		{What: store.RevokedIdentity, ID: "ag::w::i::s", Before: sec(3)},
	}
	b.revoke(want...)
	list, _ := b.revoked(0, 10)
	if diff := cmp.Diff(want, list, written); diff != "" {
		t.Error(diff)
	}
	for _, r := range list {
		if r.At.Before(before) || r.At.After(time.Now().Add(time.Minute)) {
			t.Errorf("stored at %v", r.At)
		}
	}
}

func revokeAgain(t *testing.T, b *bench) {
	one := func(before, until time.Time, reason string) store.Revocation {
		return store.Revocation{What: store.RevokedSubject, ID: "s", Before: before, Until: until, Reason: reason}
	}
	for _, step := range []struct{ stored, want store.Revocation }{
		{one(sec(5), sec(10), "a"), one(sec(5), sec(10), "a")},
		{one(sec(4), sec(11), "b"), one(sec(5), sec(11), "b")},
		{one(sec(6), sec(9), "c"), one(sec(6), sec(11), "c")},
		{one(sec(6), time.Time{}, "d"), one(sec(6), time.Time{}, "d")},
		{one(sec(6), sec(99), "e"), one(sec(6), time.Time{}, "e")},
	} {
		b.revoke(step.stored)
		list, _ := b.revoked(0, 10)
		if diff := cmp.Diff([]store.Revocation{step.want}, list, written); diff != "" {
			t.Errorf("after %q: %s", step.stored.Reason, diff)
		}
	}
}

func revokeRefusals(t *testing.T, b *bench) {
	ctx := context.Background()
	good := store.Revocation{What: store.RevokedToken, ID: "x"}
	for _, what := range []store.Revoked{"", "Token", "tokens"} {
		r := good
		r.What = what
		if err := b.s.Revoke(ctx, r); !errors.Is(err, store.ErrRevoked) {
			t.Errorf("%q: %v, want ErrRevoked", what, err)
		}
	}
	r := good
	r.ID = ""
	if err := b.s.Revoke(ctx, r); !errors.Is(err, store.ErrRevoked) {
		t.Errorf("without an id: %v", err)
	}
	for _, bad := range []string{"a\x00b", "\xff"} {
		for what, change := range map[string]func(*store.Revocation){
			"id": func(r *store.Revocation) { r.ID = bad }, "reason": func(r *store.Revocation) { r.Reason = bad },
			"by": func(r *store.Revocation) { r.By = bad },
		} {
			r := good
			change(&r)
			if err := b.s.Revoke(ctx, r); !errors.Is(err, store.ErrText) {
				t.Errorf("%s %q: %v, want ErrText", what, bad, err)
			}
		}
	}
	for _, bad := range []store.Cursor{1, -1} {
		if _, _, err := b.s.RevocationChanges(ctx, bad, 1); !errors.Is(err, store.ErrCursor) {
			t.Errorf("%d: %v, want ErrCursor", bad, err)
		}
	}
	if list, _ := b.revoked(0, 10); len(list) != 0 {
		t.Errorf("stored %v", list)
	}
}

func revocationChanges(t *testing.T, b *bench) {
	for _, text := range odd[1:] {
		b.revoke(store.Revocation{What: store.RevokedToken, ID: text, Reason: text, By: text})
	}
	var seen []string
	cursor := store.Cursor(0)
	for {
		page, next := b.revoked(cursor, 2)
		for _, r := range page {
			seen = append(seen, r.ID)
		}
		if cursor = next; len(page) < 2 {
			break
		}
	}
	if diff := cmp.Diff(odd[1:], seen); diff != "" {
		t.Error(diff)
	}
	b.revoke(store.Revocation{What: store.RevokedToken, ID: odd[1], Reason: "again"})
	if list, _ := b.revoked(cursor, 10); len(list) != 1 || list[0].Reason != "again" {
		t.Errorf("changes %v", list)
	}
}

func expireRevocations(t *testing.T, b *bench) {
	b.revoke(
		store.Revocation{What: store.RevokedToken, ID: "over", Until: time.Unix(1000, 0)},
		store.Revocation{What: store.RevokedToken, ID: "on", Until: sec(1)},
		store.Revocation{What: store.RevokedSubject, ID: "for ever", Before: sec(1)},
	)
	for _, want := range []int64{1, 0} {
		if n, err := b.s.ExpireRevocations(context.Background(), time.Now()); n != want || err != nil {
			t.Errorf("%d, %v, want %d", n, err, want)
		}
	}
	list, next := b.revoked(0, 10)
	if len(list) != 2 {
		t.Errorf("left %v", list)
	}
	if list, _ := b.revoked(next, 10); len(list) != 0 {
		t.Errorf("changes %v", list)
	}
}
