package tables

import (
	"context"
	"encoding/hex"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

var _ store.APIKeys = (*Tables)(nil)

const (
	selectKeys       = `select id, name, salt, hash, claims, created_by, revoked_by, created_at, expires_at, revoked_at, used_at, change from api_keys `
	selectAllKeys    = selectKeys + `order by created_at, id`
	selectKeysAfter  = selectKeys + `where created_at > $1 or created_at = $1 and id > $2 order by created_at, id limit $3`
	selectKeyChanges = selectKeys + `where change > $1 order by change limit $2`

	countKeys = `select count(*) from api_keys`
	insertKey = `insert into api_keys (id, name, salt, hash, claims, created_by, revoked_by, created_at, expires_at, revoked_at, used_at, change)
		values ($1, $2, $3, $4, $5, $6, '', $7, $8, 0, 0, $9) on conflict (id) do nothing`
	revokeKey = `update api_keys set revoked_at = $2, revoked_by = $3, change = $4 where id = $1 and revoked_at = 0`
	selectKey = `select 1 from api_keys where id = $1`
	// One of the same id is a repeat, and no other key.
	selectNamed = `select id from api_keys where name = $1 and revoked_at = 0 and (expires_at = 0 or expires_at > $2) and id <> $3
		and not exists (select 1 from api_keys where id = $3) limit 1`

	goneKeys   = `(expires_at > 0 and expires_at < $1 or revoked_at > 0 and revoked_at < $1)`
	expireKeys = `delete from api_keys where ` + goneKeys + ` and id in (select id from api_keys where ` + goneKeys + ` limit $2)`
)

var useKeys = &Bulk{
	Row: `update api_keys set used_at = $2 where id = $1 and used_at < $2`,
	Rows: `update api_keys k set used_at = u.t from unnest($1::text[], $2::bigint[]) as u (id, t)
		where k.id = u.id and k.used_at < u.t`,
}

// keysCounter numbers the changes of API keys.
const keysCounter = "api keys"

// CreateAPIKey implements [store.APIKeys].
func (t *Tables) CreateAPIKey(ctx context.Context, key store.APIKey) error {
	if err := checkTexts(key.ID, key.Name, key.Claims, key.CreatedBy); err != nil {
		return err
	}
	salt, hash := hex.EncodeToString(key.Salt), hex.EncodeToString(key.Hash)
	now := t.now()
	return t.db.Transact(ctx, "create an API key", func(w Writer) error {
		// The number first: who has it is alone, so that the count holds.
		number, err := take(w, keysCounter, 1)
		if err != nil {
			return err
		}
		if err := room(w, countKeys, store.MaxAPIKeys); err != nil {
			return err
		}
		var other string
		taken, err := one(w, selectNamed, []any{key.Name, now, key.ID}, &other)
		switch {
		case err != nil:
			return err
		case taken:
			return &store.NameError{Name: key.Name, ID: other}
		}
		changed, err := w.Exec(insertKey, key.ID, key.Name, salt, hash, key.Claims, key.CreatedBy, now, millis(key.ExpiresAt), number)
		return tell(w, changed, err, store.SubjectKeys)
	})
}

// room returns [store.ErrFull] if there are as many rows as there may be.
func room(r Reader, count string, most int64) error {
	var n int64
	if _, err := one(r, count, nil, &n); err != nil {
		return err
	}
	if n >= most {
		return store.ErrFull
	}
	return nil
}

// millis is a time as it is stored: 0 is none.
func millis(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMilli()
}

func timeOf(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// RevokeAPIKey implements [store.APIKeys].
func (t *Tables) RevokeAPIKey(ctx context.Context, id, by string) error {
	if err := checkTexts(id, by); err != nil {
		return err
	}
	now := t.now()
	return t.db.Transact(ctx, "revoke an API key", func(w Writer) error {
		number, err := take(w, keysCounter, 1)
		if err != nil {
			return err
		}
		changed, err := w.Exec(revokeKey, id, now, by, number)
		if err != nil || changed > 0 {
			return tell(w, changed, err, store.SubjectKeys)
		}
		var found int64
		if there, err := one(w, selectKey, []any{id}, &found); err != nil || there {
			return err
		}
		return store.ErrNotFound
	})
}

// APIKeys implements [store.APIKeys].
func (t *Tables) APIKeys(ctx context.Context) ([]store.APIKey, error) {
	var all []store.APIKey
	err := t.db.Read(ctx, "list API keys", func(r Reader) (err error) {
		all, _, err = readKeys(r, selectAllKeys)
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// APIKeysAfter implements [store.APIKeys].
func (t *Tables) APIKeysAfter(ctx context.Context, after store.KeyPlace, limit int) ([]store.APIKey, error) {
	if err := checkTexts(after.ID); err != nil {
		return nil, err
	}
	var all []store.APIKey
	err := t.db.Read(ctx, "list API keys", func(r Reader) (err error) {
		all, _, err = readKeys(r, selectKeysAfter, millis(after.CreatedAt), after.ID, max(limit, 1))
		return err
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// readKeys also returns the number of the last row's change.
func readKeys(r Reader, query string, args ...any) (all []store.APIKey, last int64, err error) {
	err = r.Query(query, args, func(scan Scan) error {
		var k store.APIKey
		var salt, hash string
		var created, expires, revoked, used int64
		err := scan(&k.ID, &k.Name, &salt, &hash, &k.Claims, &k.CreatedBy, &k.RevokedBy, &created, &expires, &revoked, &used, &last)
		if err != nil {
			return err
		}
		if k.Salt, err = hex.DecodeString(salt); err != nil {
			return err
		}
		if k.Hash, err = hex.DecodeString(hash); err != nil {
			return err
		}
		k.CreatedAt, k.ExpiresAt, k.RevokedAt, k.UsedAt = timeOf(created), timeOf(expires), timeOf(revoked), timeOf(used)
		all = append(all, k)
		return nil
	})
	return all, last, err
}

// UseAPIKeys implements [store.APIKeys].
func (t *Tables) UseAPIKeys(ctx context.Context, uses []store.KeyUse) error {
	latest := map[string]int64{} // of one key the last counts, in one statement
	for _, u := range uses {
		if err := checkTexts(u.ID); err != nil {
			return err
		}
		latest[u.ID] = max(latest[u.ID], u.At.UnixMilli())
	}
	ids := make([]string, 0, len(latest))
	for id := range latest {
		ids = append(ids, id)
	}
	for _, batch := range batches(t, ids) {
		times := make([]int64, len(batch))
		for i, id := range batch {
			times[i] = latest[id]
		}
		if _, err := t.bulk(ctx, "record the use of API keys", useKeys, len(batch), batch, times); err != nil {
			return err
		}
	}
	return nil
}

// APIKeyChanges implements [store.APIKeys].
func (t *Tables) APIKeyChanges(ctx context.Context, after store.Cursor, limit int) (all []store.APIKey, next store.Cursor, err error) {
	next, err = t.changes(ctx, "read changes of API keys", keysCounter, after, func(r Reader) (n int, last int64, err error) {
		all, last, err = readKeys(r, selectKeyChanges, int64(after), max(limit, 1))
		return len(all), last, err
	})
	if err != nil {
		return nil, after, err
	}
	return all, next, nil
}

// changes reads what has changed after a cursor, by a function that says how
// many rows it read and the number of the last.
func (t *Tables) changes(ctx context.Context, what, counter string, after store.Cursor, read func(Reader) (int, int64, error)) (store.Cursor, error) {
	var counted, last int64
	var rows int
	err := t.db.Read(ctx, what, func(r Reader) (err error) {
		// The counter first: what it has counted by now, the list shows.
		counted = 0
		if _, err = one(r, selectCounter, []any{counter}, &counted); err != nil {
			return err
		}
		rows, last, err = read(r)
		return err
	})
	if err != nil {
		return after, err
	}
	if after < 0 || int64(after) > counted {
		return after, store.ErrCursor
	}
	if rows == 0 {
		return after, nil
	}
	return store.Cursor(last), nil
}

// ExpireAPIKeys implements [store.APIKeys].
func (t *Tables) ExpireAPIKeys(ctx context.Context, before time.Time) (int64, error) {
	return t.expire(ctx, "expire API keys", expireKeys, before)
}
