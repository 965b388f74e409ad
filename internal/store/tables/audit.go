package tables

import (
	"context"
	"math"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

var _ store.Audit = (*Tables)(nil)

const (
	auditColumns = `origin, seq, at, gateway, kind, actor, action, target, outcome, reason, detail, times`
	insertAudit  = `insert into audit (` + auditColumns + `) `
	// selectAudit goes down the index of times, or that of actors.
	selectAudit = `select ` + auditColumns + ` from audit
		where at >= $1 and (at, origin, seq) < ($2, $3, $4)
			and (cast($5 as text) = '' or kind = $5) and (cast($6 as text) = '' or actor = $6)
		order by at desc, origin desc, seq desc limit $7`
	expireAudit = `delete from audit where at < $1 and (origin, seq) in
		(select origin, seq from audit where at < $1 limit $2)`
)

var recordAudit = &Bulk{
	Row: insertAudit + `values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) on conflict (origin, seq) do nothing`,
	Rows: insertAudit + `select * from unnest($1::text[], $2::bigint[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[],
			$8::text[], $9::text[], $10::text[], $11::text[], $12::bigint[])
		on conflict (origin, seq) do nothing`,
}

// RecordAudit implements [store.Audit].
func (t *Tables) RecordAudit(ctx context.Context, records []store.AuditRecord) error {
	for i := range records {
		r := &records[i]
		if r.Seq > math.MaxInt64 || r.Count < 1 {
			return store.ErrRange
		}
		if err := checkTexts(r.Origin, r.Gateway, r.Kind, r.Actor, r.Action, r.Target, r.Outcome, r.Reason, r.Detail); err != nil {
			return err
		}
	}
	for _, batch := range batches(t, records) {
		n := len(batch)
		seqs, ats, counts := make([]int64, n), make([]int64, n), make([]int64, n)
		texts := make([][]string, 9)
		for i := range texts {
			texts[i] = make([]string, n)
		}
		for i, r := range batch {
			seqs[i], ats[i], counts[i] = int64(r.Seq), r.At.UnixMilli(), r.Count
			for j, text := range []string{r.Origin, r.Gateway, r.Kind, r.Actor, r.Action, r.Target, r.Outcome, r.Reason, r.Detail} {
				texts[j][i] = text
			}
		}
		_, err := t.bulk(ctx, "record what happened", recordAudit, n,
			texts[0], seqs, ats, texts[1], texts[2], texts[3], texts[4], texts[5], texts[6], texts[7], texts[8], counts)
		if err != nil {
			return err
		}
	}
	return nil
}

// AuditRecords implements [store.Audit].
func (t *Tables) AuditRecords(ctx context.Context, f store.AuditFilter, limit int) ([]store.AuditRecord, error) {
	before := store.AuditKey{At: time.UnixMilli(math.MaxInt64)}
	if f.Before != nil {
		before = *f.Before
	}
	if before.Seq > math.MaxInt64 {
		return nil, store.ErrRange
	}
	if err := checkTexts(f.Kind, f.Actor, before.Origin); err != nil {
		return nil, err
	}
	since := int64(math.MinInt64)
	if !f.Since.IsZero() {
		since = f.Since.UnixMilli()
	}
	args := []any{since, before.At.UnixMilli(), before.Origin, int64(before.Seq), f.Kind, f.Actor, max(limit, 1)}
	var all []store.AuditRecord
	err := t.db.Read(ctx, "read the audit", func(r Reader) error {
		all = nil
		return r.Query(selectAudit, args, func(scan Scan) error {
			var x store.AuditRecord
			var seq, at int64
			err := scan(&x.Origin, &seq, &at, &x.Gateway, &x.Kind, &x.Actor, &x.Action, &x.Target, &x.Outcome, &x.Reason, &x.Detail, &x.Count)
			x.Seq, x.At = uint64(seq), time.UnixMilli(at)
			all = append(all, x)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// ExpireAudit implements [store.Audit].
func (t *Tables) ExpireAudit(ctx context.Context, before time.Time) (int64, error) {
	return t.expire(ctx, "expire the audit", expireAudit, before)
}
