package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/aether-gateway/gateway/internal/store"
)

var mailboxTests = []test{{"MailAddresses", mailAddresses}, {"WaitingAddresses", waitingAddresses}}

// mailAddresses: positions and notes, each address once, in order, page by page.
func mailAddresses(t *testing.T, b *bench) {
	ctx := context.Background()
	b.commit(at("a", "ag::w::i::1", 1, 1), at("b", "ag::w::i::1", 1, 1), at("c", "ag::w::i::3", 1, 1), at("d", "us::u::1", 1, 1))
	if _, err := b.s.NoteAbsence(ctx, []store.Note{{Address: "ag::w::i::1", Position: 1}, {Address: "ag::w::i::2", Position: 1}, {Address: "ag::w%", Position: 1}}); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		prefix, after string
		limit         int
		want          []string
	}{
		{"", "", 10, []string{"ag::w%", "ag::w::i::1", "ag::w::i::2", "ag::w::i::3", "us::u::1"}},
		{"", "", 2, []string{"ag::w%", "ag::w::i::1"}},
		{"", "ag::w::i::1", 2, []string{"ag::w::i::2", "ag::w::i::3"}},
		{"ag::w::", "", 10, []string{"ag::w::i::1", "ag::w::i::2", "ag::w::i::3"}},
		{"ag::w%", "", 10, []string{"ag::w%"}},
		{"us::", "us::u::1", 10, nil},
	} {
		got, err := b.s.MailAddresses(ctx, x.prefix, x.after, x.limit)
		if err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%q behind %q: %q, %v, want %q", x.prefix, x.after, got, err, x.want)
		}
	}
	if _, err := b.s.MailAddresses(ctx, "\xff", "", 1); !errors.Is(err, store.ErrText) {
		t.Errorf("a prefix that is no text: %v", err)
	}
}

// waitingAddresses: notes, and identities that run or ended unclean, as long as
// they read their own address.
func waitingAddresses(t *testing.T, b *bench) {
	ctx := context.Background()
	if _, err := b.s.NoteAbsence(ctx, []store.Note{{Address: "ag::w::i::2", Position: 1}, {Address: "us::u::1", Position: 1}}); err != nil {
		t.Fatal(err)
	}
	b.begin("ag::w::i::1", "ag::w::i::1", 1)
	b.begin("ag::w::i::2", "ag::w::i::2", 1)
	b.begin("ag::w::i::3", "ag::w::i::3", 1)
	b.begin("ag::w::i::4", "ga::w", 1)
	b.begin("ag::w::i::5", "ag::w::i::5", 1)
	b.commitClean(at("ag::w::i::3", "ag::w::i::3", 1, 1))
	b.commit(at("ag::w::i::5", "ag::w::i::5", 1, 1))
	for _, x := range []struct {
		prefix, after string
		limit         int
		want          []string
	}{
		{"", "", 10, []string{"ag::w::i::1", "ag::w::i::2", "ag::w::i::5", "us::u::1"}},
		{"ag::", "", 2, []string{"ag::w::i::1", "ag::w::i::2"}},
		{"ag::", "ag::w::i::2", 2, []string{"ag::w::i::5"}},
		{"tu::", "", 10, nil},
	} {
		got, err := b.s.WaitingAddresses(ctx, x.prefix, x.after, x.limit)
		if err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%q behind %q: %q, %v, want %q", x.prefix, x.after, got, err, x.want)
		}
	}
	b.begin("ag::w::i::3", "ag::w::i::3", 2) // runs again
	if got, err := b.s.WaitingAddresses(ctx, "ag::", "ag::w::i::2", 1); err != nil || !slices.Equal(got, []string{"ag::w::i::3"}) {
		t.Errorf("after it has come back: %q, %v", got, err)
	}
	if _, err := b.s.WaitingAddresses(ctx, "\xff", "", 1); !errors.Is(err, store.ErrText) {
		t.Errorf("a prefix that is no text: %v", err)
	}
}
