package storetest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/google/go-cmp/cmp"
)

var auditTests = []test{
	{"AuditPages", auditPages},
	{"AuditFilters", auditFilters},
	{"AuditOnce", auditOnce},
	{"AuditRefusals", auditRefusals},
	{"ExpireAudit", expireAudit},
}

// record is one that happened n seconds after a fixed time.
func record(n int, origin, kind, actor string) store.AuditRecord {
	return store.AuditRecord{
		AuditKey: store.AuditKey{At: time.UnixMilli(1_800_000_000_000 + int64(n)*1000), Origin: origin, Seq: uint64(n)},
		Gateway:  "gw", Kind: kind, Actor: actor, Action: "send", Target: "ag::w::i::s", Outcome: "refused", Reason: "ERR", Detail: "not allowed", Count: int64(n + 1),
	}
}

func (b *bench) audit(records ...store.AuditRecord) {
	b.t.Helper()
	if err := b.s.RecordAudit(context.Background(), records); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) audited(f store.AuditFilter, limit int) []store.AuditRecord {
	b.t.Helper()
	all, err := b.s.AuditRecords(context.Background(), f, limit)
	if err != nil {
		b.t.Fatal(err)
	}
	return all
}

// auditPages: everything comes back, newest first, page by page; records of the
// same moment are told apart.
func auditPages(t *testing.T, b *bench) {
	var in []store.AuditRecord
	for i := range 1200 {
		r := record(i/2, fmt.Sprint("origin", i%2), "refusal", "someone")
		in = append(in, r)
	}
	b.audit(in...)
	var out []store.AuditRecord
	for f := (store.AuditFilter{}); ; {
		page := b.audited(f, 100)
		out = append(out, page...)
		if len(page) < 100 {
			break
		}
		f.Before = &page[len(page)-1].AuditKey
	}
	if len(out) != len(in) {
		t.Fatalf("%d records came back of %d", len(out), len(in))
	}
	for i, got := range out {
		if want := in[len(in)-1-i]; !cmp.Equal(got, want) {
			t.Fatalf("record %d: %s", i, cmp.Diff(want, got))
		}
	}
}

func auditFilters(t *testing.T, b *bench) {
	b.audit(record(0, "o", "connect", "a"), record(1, "o", "refusal", "a"), record(2, "o", "refusal", "b"))
	for _, x := range []struct {
		name string
		f    store.AuditFilter
		want int
	}{
		{"all", store.AuditFilter{}, 3},
		{"kind", store.AuditFilter{Kind: "refusal"}, 2},
		{"actor", store.AuditFilter{Actor: "a"}, 2},
		{"both", store.AuditFilter{Kind: "refusal", Actor: "a"}, 1},
		{"since", store.AuditFilter{Since: record(1, "", "", "").At}, 2},
		{"nobody", store.AuditFilter{Actor: "' or 1=1 --"}, 0},
	} {
		if got := b.audited(x.f, 10); len(got) != x.want {
			t.Errorf("%s: %d records, want %d", x.name, len(got), x.want)
		}
	}
	if got := b.audited(store.AuditFilter{}, 2); len(got) != 2 || got[0].Seq != 2 {
		t.Errorf("two of three: %v", got)
	}
}

// auditOnce: what is recorded again, after an answer was lost, is there once.
func auditOnce(t *testing.T, b *bench) {
	first, second := record(0, "o", "connect", "a"), record(1, "o", "connect", "a")
	b.audit(first)
	b.audit(first, second)
	b.audit()
	if got := b.audited(store.AuditFilter{}, 10); len(got) != 2 {
		t.Errorf("got %v", got)
	}
}

func auditRefusals(t *testing.T, b *bench) {
	good := record(0, "o", "connect", "a")
	for _, x := range []struct {
		change func(*store.AuditRecord)
		want   error
	}{
		{func(r *store.AuditRecord) { r.Actor = "\xff" }, store.ErrText},
		{func(r *store.AuditRecord) { r.Detail = "a\x00b" }, store.ErrText},
		{func(r *store.AuditRecord) { r.Seq = math.MaxUint64 }, store.ErrRange},
		{func(r *store.AuditRecord) { r.Count = 0 }, store.ErrRange},
	} {
		bad := record(1, "o", "connect", "a")
		x.change(&bad)
		if err := b.s.RecordAudit(context.Background(), []store.AuditRecord{good, bad}); !errors.Is(err, x.want) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	if got := b.audited(store.AuditFilter{}, 10); len(got) != 0 {
		t.Errorf("something was done of a refused call: %v", got)
	}
	if _, err := b.s.AuditRecords(context.Background(), store.AuditFilter{Kind: "\xff"}, 1); !errors.Is(err, store.ErrText) {
		t.Errorf("a filter: %v", err)
	}
}

func expireAudit(t *testing.T, b *bench) {
	b.audit(record(0, "o", "connect", "a"), record(1, "o", "connect", "a"), record(2, "o", "connect", "a"))
	n, err := b.s.ExpireAudit(context.Background(), record(2, "", "", "").At)
	if err != nil || n != 2 {
		t.Errorf("expired %d, %v", n, err)
	}
	if got := b.audited(store.AuditFilter{}, 10); len(got) != 1 || got[0].Seq != 2 {
		t.Errorf("left: %v", got)
	}
}
