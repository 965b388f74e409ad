package tables

import (
	"context"
	"slices"
)

const (
	purgeKVOwner = `delete from kv where owner = $1 and owner <> '' and (` + kvColumns + `) in
		(select ` + kvColumns + ` from kv where owner = $1 and owner <> '' limit $2) returning account, size, expires_at`
	purgeKVWorkspace = `delete from kv where workspace = $1 and (` + kvColumns + `) in
		(select ` + kvColumns + ` from kv where workspace = $1 limit $2)
		and exists (select 1 from workspaces where name = $1 and deleted_at is not null) returning account, size, expires_at`
	expireKV = `delete from kv where expires_at <= $1 and (` + kvColumns + `) in
		(select ` + kvColumns + ` from kv where expires_at <= $1 order by expires_at limit $2) returning account, size, expires_at`
	dropKVAccounts = `delete from kv_accounts where keys = 0 and bytes = 0`

	// kvBatch is how many keys one statement removes; expireRounds how many of
	// these a call of ExpireKV makes.
	kvBatch      = 500
	expireRounds = 20
)

// removeKV removes up to kvBatch keys and takes them off their accounts.
func (t *Tables) removeKV(ctx context.Context, what, query string, arg any) (removed, live int64, err error) {
	now := t.now()
	err = t.db.Transact(ctx, what, func(w Writer) error {
		removed, live = 0, 0
		type sum struct{ keys, bytes int64 }
		accounts := map[string]sum{}
		err := w.Query(query, []any{arg, kvBatch}, func(scan Scan) error {
			var account string
			var size int64
			var expires *int64
			err := scan(&account, &size, &expires)
			had := accounts[account]
			accounts[account] = sum{had.keys - 1, had.bytes - kvCharge(size)}
			removed++
			if expires == nil || *expires > now {
				live++
			}
			return err
		})
		if err != nil {
			return err
		}
		// Rows before accounts, these in order, as all who change keys do.
		names := make([]string, 0, len(accounts))
		for name := range accounts {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			var keys, bytes int64
			if _, err := one(w, accountKV, []any{name, accounts[name].keys, accounts[name].bytes}, &keys, &bytes); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return 0, 0, err
	}
	return removed, live, nil
}

// removeAllKV is removeKV until no key is left.
func (t *Tables) removeAllKV(ctx context.Context, what, query string, arg any) (total, live int64, err error) {
	for {
		n, alive, err := t.removeKV(ctx, what, query, arg)
		total, live = total+n, live+alive
		if err != nil || n < kvBatch {
			return total, live, err
		}
	}
}

// PurgeKV implements [store.KV].
func (t *Tables) PurgeKV(ctx context.Context, owner string) (int64, error) {
	if err := checkTexts(owner); err != nil || owner == "" {
		return 0, err
	}
	_, live, err := t.removeAllKV(ctx, "purge the keys of an owner", purgeKVOwner, owner)
	return live, err
}

// ExpireKV implements [store.KV].
func (t *Tables) ExpireKV(ctx context.Context) (total int64, err error) {
	before := t.now()
	for range expireRounds {
		n, _, err := t.removeKV(ctx, "expire keys", expireKV, before)
		total += n
		if err != nil {
			return total, err
		}
		if n < kvBatch {
			break
		}
	}
	return total, t.db.Write(ctx, "drop empty accounts", func(w Writer) error {
		_, err := w.Exec(dropKVAccounts)
		return err
	})
}
