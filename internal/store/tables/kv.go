package tables

import (
	"context"
	"errors"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

var _ store.KV = (*Tables)(nil)

const (
	kvKey     = `workspace = $1 and scope = $2 and implementation = $3 and owner = $4 and key = $5`
	kvColumns = `workspace, scope, implementation, owner, key`
	selectKV  = `select account, size, form, changed_at, expires_at, value from kv where ` + kvKey
	insertKV  = `insert into kv (` + kvColumns + `, account, size, form, changed_at, expires_at, value)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) on conflict (` + kvColumns + `) do nothing`
	updateKV = `update kv set size = $6, form = $7, changed_at = $8, expires_at = $9, value = $10 where ` + kvKey
	deleteKV = `delete from kv where ` + kvKey

	countKV   = `select keys, bytes from kv_accounts where account = $1`
	accountKV = `insert into kv_accounts (account, keys, bytes) values ($1, $2, $3)
		on conflict (account) do update set keys = kv_accounts.keys + excluded.keys, bytes = kv_accounts.bytes + excluded.bytes
		returning keys, bytes`

	// Values are read for those keys only that are returned, and one more.
	listKV = `select k.key, k.form, k.changed_at, k.expires_at, k.value from kv k join (
			select key, size, cast(sum(size) over (order by key rows between unbounded preceding and current row) as bigint) as upto,
				row_number() over (order by key) as nth
			from (select key, size from kv where workspace = $1 and scope = $2 and implementation = $3 and owner = $4
				and (expires_at is null or expires_at > $5) and key > $6 and key >= $7`
	listKVBelow = ` and key < $10`
	listKVKeys  = `select key from kv where workspace = $1 and scope = $2 and implementation = $3 and owner = $4
		and (expires_at is null or expires_at > $5) and key > $6 and key >= $7`
	listKVKeysBelow = ` and key < $9`
	listKVKeysEnd   = ` order by key limit $8`
	listKVEnd       = ` order by key limit $8) of_all
		) s on s.key = k.key
		where k.workspace = $1 and k.scope = $2 and k.implementation = $3 and k.owner = $4 and (s.upto - s.size <= $9 or s.nth = 2)
		order by k.key`

	// Small values go along with the sums; of the others only those are read that
	// are returned.
	snapshotSpace = ` as part, ` + kvColumns + `, size, form, changed_at, expires_at, case when size <= 4096 then value end as small from kv where `
	snapshotLive  = ` and form = $9 and (expires_at is null or expires_at > $10) order by key limit $11`
	snapshotKV    = `with sums as (
			select *, cast(sum(size) over (order by part, key rows between unbounded preceding and current row) as bigint) as upto from (
				select * from (select 0` + snapshotSpace + `workspace = $1 and scope = $2 and implementation = $3 and owner = $4` + snapshotLive + `) a
				union all
				select * from (select 1` + snapshotSpace + `workspace = $5 and scope = $6 and implementation = $7 and owner = $8` + snapshotLive + `) b
			) of_both
		)
		select s.part, s.size, s.key, s.form, s.changed_at, s.expires_at, coalesce(s.small, (select k.value from kv k
			where k.workspace = s.workspace and k.scope = s.scope and k.implementation = s.implementation and k.owner = s.owner and k.key = s.key))
		from sums s where s.upto - s.size <= $12 order by s.part, s.key`
)

// errPresent has a change begin anew: somebody has made the key meanwhile.
var errPresent = errors.New("the key is there by now")

// kvAttempts bounds how often a change begins anew.
const kvAttempts = 20

func kvSize(key string, value []byte) int64 { return int64(len(key) + len(value)) }

// kvCharge is what a size counts.
func kvCharge(size int64) int64 { return (size + store.KVStep - 1) / store.KVStep * store.KVStep }

func checkKV(space store.KVSpace, more ...string) error {
	return checkTexts(append(more, space.Workspace, space.Implementation, space.Owner)...)
}

// kvStored is a row with what only the tables know.
type kvStored struct {
	store.KVRow
	account string
	size    int64
}

func millisOrNull(at time.Time) *int64 {
	if at.IsZero() {
		return nil
	}
	ms := at.UnixMilli()
	return &ms
}

// scanKV reads form, changed_at, expires_at and value, after other columns.
func scanKV(scan Scan, row *store.KVRow, before ...any) error {
	var changed int64
	var expires *int64
	var form int64
	if err := scan(append(before, &form, &changed, &expires, &row.Value)...); err != nil {
		return err
	}
	row.Form, row.ChangedAt = uint8(form), time.UnixMilli(changed)
	if expires != nil {
		row.ExpiresAt = time.UnixMilli(*expires)
	}
	return nil
}

func readKV(r Reader, query string, space store.KVSpace, key string) (row kvStored, found bool, err error) {
	err = r.Query(query, []any{space.Workspace, int64(space.Scope), space.Implementation, space.Owner, key}, func(scan Scan) error {
		found = true
		row.Key = key
		return scanKV(scan, &row.KVRow, &row.account, &row.size)
	})
	return row, found, err
}

func (r *kvStored) expired(now time.Time) bool {
	return !r.ExpiresAt.IsZero() && !r.ExpiresAt.After(now)
}

// GetKV implements [store.KV].
func (t *Tables) GetKV(ctx context.Context, space store.KVSpace, key string) (store.KVRow, bool, error) {
	if err := checkKV(space, key); err != nil {
		return store.KVRow{}, false, err
	}
	var row kvStored
	var found bool
	err := t.db.Read(ctx, "read a key", func(r Reader) (err error) {
		row, found, err = readKV(r, selectKV, space, key)
		return err
	})
	if err != nil || !found || row.expired(t.o.Now()) {
		return store.KVRow{}, false, err
	}
	return row.KVRow, true, nil
}

// ChangeKV implements [store.KV].
func (t *Tables) ChangeKV(ctx context.Context, space store.KVSpace, key string, account store.KVAccount,
	change func(time.Time, *store.KVRow) (store.KVChange, error),
) error {
	if err := checkKV(space, key, account.Name); err != nil {
		return err
	}
	for range kvAttempts {
		var refused error // by change: it goes back as it is
		committing := false
		err := t.db.Transact(ctx, "change a key", func(w Writer) error {
			if committing { // an earlier run's commit had no answer
				return store.ErrUncertain
			}
			err := t.changeKV(w, space, key, account, func(now time.Time, row *store.KVRow) (c store.KVChange, err error) {
				c, err = change(now, row)
				refused = err
				return c, err
			})
			committing = err == nil
			return err
		})
		switch {
		case err == nil || errors.Is(err, errUnchanged):
			return nil
		case errors.Is(err, errPresent):
			continue
		case refused != nil && errors.Is(err, refused):
			return refused
		case errors.Is(err, store.ErrFull):
			return store.ErrFull
		case committing:
			return errors.Join(store.ErrUncertain, err)
		}
		return err
	}
	return errors.New("store: a key is made and removed again and again")
}

func (t *Tables) changeKV(w Writer, space store.KVSpace, key string, account store.KVAccount,
	change func(time.Time, *store.KVRow) (store.KVChange, error),
) error {
	row, found, err := readKV(w, selectKV+t.o.ForUpdate, space, key)
	if err != nil {
		return err
	}
	now := t.o.Now()
	var current *store.KVRow
	if found && !row.expired(now) {
		current = &row.KVRow
	}
	c, err := change(now, current)
	if err != nil {
		return err
	}
	pk := []any{space.Workspace, int64(space.Scope), space.Implementation, space.Owner, key}
	switch {
	case c.Verb == store.KVPut && !found:
		size := kvSize(key, c.Value)
		changed, err := w.Exec(insertKV, append(pk, account.Name, size, int64(c.Form), now.UnixMilli(), millisOrNull(c.ExpiresAt), c.Value)...)
		if err != nil {
			return err
		}
		if changed == 0 {
			return errPresent
		}
		return count(w, account.Name, account, 1, kvCharge(size))
	case c.Verb == store.KVPut:
		size := kvSize(key, c.Value)
		if _, err := w.Exec(updateKV, append(pk, size, int64(c.Form), now.UnixMilli(), millisOrNull(c.ExpiresAt), c.Value)...); err != nil {
			return err
		}
		return count(w, row.account, account, 0, kvCharge(size)-kvCharge(row.size))
	case c.Verb == store.KVDelete && found:
		if _, err := w.Exec(deleteKV, pk...); err != nil {
			return err
		}
		return count(w, row.account, account, -1, -kvCharge(row.size))
	}
	return errUnchanged
}

// count adds to what an account has, last of all, so that it is not held for
// long. limits says how much that may be.
func count(w Writer, account string, limits store.KVAccount, keys, bytes int64) error {
	if keys == 0 && bytes == 0 {
		return nil
	}
	var hasKeys, hasBytes int64
	if _, err := one(w, accountKV, []any{account, keys, bytes}, &hasKeys, &hasBytes); err != nil {
		return err
	}
	if keys > 0 && limits.Keys > 0 && hasKeys > limits.Keys || bytes > 0 && limits.Bytes > 0 && hasBytes > limits.Bytes {
		return store.ErrFull
	}
	return nil
}

// ListKV implements [store.KV].
func (t *Tables) ListKV(ctx context.Context, space store.KVSpace, prefix, after string, limit int, bytes int64) ([]store.KVRow, bool, error) {
	if err := checkKV(space, prefix, after); err != nil {
		return nil, false, err
	}
	limit = max(limit, 1)
	query := listKV
	args := []any{space.Workspace, int64(space.Scope), space.Implementation, space.Owner, t.now(), after, prefix, int64(limit) + 1, bytes}
	if below, ok := behind(prefix); ok {
		query += listKVBelow
		args = append(args, below)
	}
	var rows []store.KVRow
	var total int64
	var more bool
	err := t.db.Read(ctx, "list keys", func(r Reader) error {
		rows, total, more = nil, 0, false
		return r.Query(query+listKVEnd, args, func(scan Scan) error {
			var row store.KVRow
			if err := scanKV(scan, &row, &row.Key); err != nil {
				return err
			}
			total += kvSize(row.Key, row.Value)
			if more = more || len(rows) >= limit || len(rows) > 0 && total > bytes; !more {
				rows = append(rows, row)
			}
			return nil
		})
	})
	if err != nil {
		return nil, false, err
	}
	return rows, more, nil
}

// ListKVKeys implements [store.KV].
func (t *Tables) ListKVKeys(ctx context.Context, space store.KVSpace, prefix, after string, limit int) (keys []string, more bool, err error) {
	if err := checkKV(space, prefix, after); err != nil {
		return nil, false, err
	}
	limit = max(limit, 1)
	query := listKVKeys
	args := []any{space.Workspace, int64(space.Scope), space.Implementation, space.Owner, t.now(), after, prefix, int64(limit) + 1}
	if below, ok := behind(prefix); ok {
		query += listKVKeysBelow
		args = append(args, below)
	}
	err = t.db.Read(ctx, "list keys", func(r Reader) error {
		keys, more = nil, false
		return r.Query(query+listKVKeysEnd, args, func(scan Scan) error {
			var key string
			if err := scan(&key); err != nil {
				return err
			}
			if more = len(keys) >= limit; !more {
				keys = append(keys, key)
			}
			return nil
		})
	})
	if err != nil {
		return nil, false, err
	}
	return keys, more, nil
}

// SnapshotKV implements [store.KV].
func (t *Tables) SnapshotKV(ctx context.Context, first, second store.KVSpace, form uint8, limit int, bytes int64) (rows [2][]store.KVRow, cut bool, err error) {
	if err := errors.Join(checkKV(first), checkKV(second)); err != nil {
		return rows, false, store.ErrText
	}
	args := []any{
		first.Workspace, int64(first.Scope), first.Implementation, first.Owner,
		second.Workspace, int64(second.Scope), second.Implementation, second.Owner,
		int64(form), t.now(), int64(limit) + 1, bytes,
	}
	err = t.db.Read(ctx, "read a snapshot of keys", func(r Reader) error {
		rows, cut = [2][]store.KVRow{}, false
		total := int64(0)
		return r.Query(snapshotKV, args, func(scan Scan) error {
			var row store.KVRow
			var part, size int64
			if err := scanKV(scan, &row, &part, &size, &row.Key); err != nil {
				return err
			}
			total += size
			if total > bytes || len(rows[part]) >= limit {
				cut = true
				return nil
			}
			rows[part] = append(rows[part], row)
			return nil
		})
	})
	if err != nil {
		return [2][]store.KVRow{}, false, err
	}
	return rows, cut, nil
}

// CountKV implements [store.KV].
func (t *Tables) CountKV(ctx context.Context, account string) (keys, bytes int64, err error) {
	if err := checkTexts(account); err != nil {
		return 0, 0, err
	}
	err = t.db.Read(ctx, "count keys", func(r Reader) error {
		keys, bytes = 0, 0
		_, err := one(r, countKV, []any{account}, &keys, &bytes)
		return err
	})
	return keys, bytes, err
}
