package audit

import (
	"context"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// recordsOf are records, newest first, in pages.
type recordsOf struct {
	store.Audit
	list []store.AuditRecord
}

func (r recordsOf) AuditRecords(_ context.Context, f store.AuditFilter, limit int) (page []store.AuditRecord, err error) {
	for _, x := range r.list {
		if len(page) < limit && (f.Before == nil || x.Seq < f.Before.Seq) && !x.At.Before(f.Since) {
			page = append(page, x)
		}
	}
	return page, nil
}

// What was passed over is found, unless it was replayed since, and not what only
// looks like it.
func TestMoves(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(10_000_000)
	r := recordsOf{}
	add := func(action, target, outcome, detail string) {
		seq := uint64(len(r.list) + 1)
		x := store.AuditRecord{AuditKey: store.AuditKey{At: at.Add(time.Duration(seq) * time.Second), Seq: seq}, Kind: string(Operate), Actor: "ops", Action: action, Target: target, Outcome: outcome, Detail: detail}
		r.list = append([]store.AuditRecord{x}, r.list...)
	}
	passed := func(position uint64, want bool) {
		t.Helper()
		by, when, ok, err := Moves{r}.PassedOver(t.Context(), "ag::w::i::s", position, at)
		if err != nil || ok != want || ok && (by != "ops" || when.IsZero()) {
			t.Errorf("%d: %q, %v, %v, %v; want %v", position, by, when, ok, err, want)
		}
	}
	passed(5, false)
	add(MailSkip, "ag::w::i::other", OK, PassedOver(0, 100))
	add(MailSkip, "ag::w::i::s", Failed, PassedOver(0, 100))
	add("mail peek", "ag::w::i::s", OK, PassedOver(0, 100))
	add(MailSkip, "ag::w::i::s", OK, "positions were passed over")
	passed(5, false)
	add(MailSkip, "ag::w::i::s", OK, PassedOver(3, 7))
	for range movesPage + 1 { // far back
		add("sessions kick", "x", OK, "")
	}
	for position, want := range map[uint64]bool{2: false, 3: true, 7: true, 8: false} {
		passed(position, want)
	}
	add(MailReplay, "ag::w::i::s", OK, ReplayedFrom(5))
	passed(4, true)
	passed(5, false)
	add(MailPurge, "ag::w::i::s", OK, PassedOver(5, 1<<60))
	passed(5, true)
}
