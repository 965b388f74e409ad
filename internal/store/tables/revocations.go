package tables

import (
	"context"
	"math"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

var _ store.Revocations = (*Tables)(nil)

const (
	selectRevocationChanges = `select what, id, issued_before, until, reason, revoked_by, revoked_at, change from revocations
		where change > $1 order by change limit $2`

	countRevocations = `select count(*) from revocations`
	revoke           = `insert into revocations (what, id, issued_before, until, reason, revoked_by, revoked_at, change)
		values ($1, $2, $3, $4, $5, $6, $7, $8)
		on conflict (what, id) do update set
			issued_before = case when excluded.issued_before > revocations.issued_before then excluded.issued_before else revocations.issued_before end,
			until = case when excluded.until > revocations.until then excluded.until else revocations.until end,
			reason = excluded.reason, revoked_by = excluded.revoked_by, revoked_at = excluded.revoked_at, change = excluded.change`

	expireRevocations = `delete from revocations where until < $1 and (what, id) in
		(select what, id from revocations where until < $1 limit $2)`
)

const (
	// revocationsCounter numbers the changes of revocations.
	revocationsCounter = "revocations"
	// keptForEver is later than any time.
	keptForEver = math.MaxInt64
)

// Revoke implements [store.Revocations].
func (t *Tables) Revoke(ctx context.Context, r store.Revocation) error {
	if !r.What.Valid() || r.ID == "" {
		return store.ErrRevoked
	}
	if err := checkTexts(r.ID, r.Reason, r.By); err != nil {
		return err
	}
	until := int64(keptForEver)
	if !r.Until.IsZero() {
		until = r.Until.UnixMilli()
	}
	now := t.now()
	return t.db.Transact(ctx, "revoke", func(w Writer) error {
		number, err := take(w, revocationsCounter, 1)
		if err != nil {
			return err
		}
		if err := room(w, countRevocations, store.MaxRevocations); err != nil {
			return err
		}
		changed, err := w.Exec(revoke, string(r.What), r.ID, millis(r.Before), until, r.Reason, r.By, now, number)
		return tell(w, changed, err, store.SubjectKeys)
	})
}

// RevocationChanges implements [store.Revocations].
func (t *Tables) RevocationChanges(ctx context.Context, after store.Cursor, limit int) (all []store.Revocation, next store.Cursor, err error) {
	next, err = t.changes(ctx, "read changes of revocations", revocationsCounter, after, func(r Reader) (n int, last int64, err error) {
		all, last, err = readRevocations(r, int64(after), max(limit, 1))
		return len(all), last, err
	})
	if err != nil {
		return nil, after, err
	}
	return all, next, nil
}

func readRevocations(r Reader, args ...any) (all []store.Revocation, last int64, err error) {
	err = r.Query(selectRevocationChanges, args, func(scan Scan) error {
		var rev store.Revocation
		var what string
		var before, until, at int64
		err := scan(&what, &rev.ID, &before, &until, &rev.Reason, &rev.By, &at, &last)
		rev.What, rev.Before, rev.At = store.Revoked(what), timeOf(before), timeOf(at)
		if until != keptForEver {
			rev.Until = time.UnixMilli(until)
		}
		all = append(all, rev)
		return err
	})
	return all, last, err
}

// ExpireRevocations implements [store.Revocations].
func (t *Tables) ExpireRevocations(ctx context.Context, before time.Time) (int64, error) {
	return t.expire(ctx, "expire revocations", expireRevocations, before)
}
