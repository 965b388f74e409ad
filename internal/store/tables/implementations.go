package tables

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

var _ store.Implementations = (*Tables)(nil)

const (
	selectImplementations    = `select name, workspace, profile, params, overridable, created_by, created_at from implementations `
	selectAllImplementations = selectImplementations + `order by name, workspace`
	selectImplementation     = selectImplementations + `where name = $1 and workspace = $2`
	countOtherImpls          = `select count(*) from implementations where not (name = $1 and workspace = $2)`
	putImplementation        = `insert into implementations (name, workspace, profile, params, overridable, created_by, created_at)
		values ($1, $2, $3, $4, $5, $6, $7) on conflict (name, workspace) do update set
		profile = excluded.profile, params = excluded.params, overridable = excluded.overridable,
		created_by = excluded.created_by, created_at = excluded.created_at`
	deleteImplementation   = `delete from implementations where name = $1 and workspace = $2`
	endImplementationsOfWS = `delete from implementations where workspace = $1`
)

// implementationsCounter numbers the changes of implementations.
const implementationsCounter = "implementations"

// PutImplementation implements [store.Implementations].
func (t *Tables) PutImplementation(ctx context.Context, i store.Implementation) (store.Implementation, error) {
	texts := append([]string{i.Name, i.Workspace, i.Profile, i.CreatedBy}, i.Overridable...)
	for k, v := range i.Params {
		texts = append(texts, k, v)
	}
	if err := checkTexts(texts...); err != nil {
		return store.Implementation{}, err
	}
	params, err := jsonText(i.Params, len(i.Params) == 0, "{}")
	if err != nil {
		return store.Implementation{}, err
	}
	overridable, err := jsonText(i.Overridable, len(i.Overridable) == 0, "[]")
	if err != nil {
		return store.Implementation{}, err
	}
	now := t.now()
	i.CreatedAt = time.UnixMilli(now)
	err = t.db.Transact(ctx, "register an implementation", func(w Writer) error {
		// The counter's lock makes those who change some wait for each other, so
		// that none is counted too few.
		if _, err := take(w, implementationsCounter, 1); err != nil {
			return err
		}
		var others int64
		if _, err := one(w, countOtherImpls, []any{i.Name, i.Workspace}, &others); err != nil {
			return err
		}
		if others >= store.MaxImplementations {
			return store.ErrFull
		}
		changed, err := w.Exec(putImplementation, i.Name, i.Workspace, i.Profile, params, overridable, i.CreatedBy, now)
		return tell(w, changed, err, store.SubjectImplementations)
	})
	if err != nil {
		return store.Implementation{}, err
	}
	return i, nil
}

// jsonText is v as JSON; an empty one as it is given.
func jsonText(v any, empty bool, none string) (string, error) {
	if empty {
		return none, nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}

// RemoveImplementation implements [store.Implementations].
func (t *Tables) RemoveImplementation(ctx context.Context, name, workspace string) (store.Implementation, error) {
	if err := checkTexts(name, workspace); err != nil {
		return store.Implementation{}, err
	}
	var found []store.Implementation
	err := t.db.Transact(ctx, "remove an implementation", func(w Writer) (err error) {
		if _, err = take(w, implementationsCounter, 1); err != nil {
			return err
		}
		if found, err = readImplementations(w, selectImplementation, name, workspace); err != nil {
			return err
		}
		if len(found) == 0 {
			return store.ErrNotFound // and the version stays
		}
		changed, err := w.Exec(deleteImplementation, name, workspace)
		return tell(w, changed, err, store.SubjectImplementations)
	})
	if err != nil {
		return store.Implementation{}, err
	}
	return found[0], nil
}

// endImplementations removes the entries of a workspace that is deleted: what
// they start must not be started in another one of its name.
func endImplementations(w Writer, workspace string) error {
	if _, err := take(w, implementationsCounter, 1); err != nil {
		return err
	}
	changed, err := w.Exec(endImplementationsOfWS, workspace)
	return tell(w, changed, err, store.SubjectImplementations)
}

// Implementations implements [store.Implementations].
func (t *Tables) Implementations(ctx context.Context) ([]store.Implementation, int64, error) {
	var version int64
	var all []store.Implementation
	err := t.db.Read(ctx, "read implementations", func(r Reader) (err error) {
		// The counter first: what it has counted by now, the list shows.
		version = 0
		if _, err = one(r, selectCounter, []any{implementationsCounter}, &version); err != nil {
			return err
		}
		all, err = readImplementations(r, selectAllImplementations)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return all, version, nil
}

// ImplementationsVersion implements [store.Implementations].
func (t *Tables) ImplementationsVersion(ctx context.Context) (version int64, err error) {
	err = t.db.Read(ctx, "read the version of implementations", func(r Reader) error {
		version = 0
		_, err := one(r, selectCounter, []any{implementationsCounter}, &version)
		return err
	})
	return version, err
}

func readImplementations(r Reader, query string, args ...any) (all []store.Implementation, err error) {
	err = r.Query(query, args, func(scan Scan) error {
		var i store.Implementation
		var at int64
		var params, overridable string
		if err := scan(&i.Name, &i.Workspace, &i.Profile, &params, &overridable, &i.CreatedBy, &at); err != nil {
			return err
		}
		i.CreatedAt = time.UnixMilli(at)
		if params != "{}" {
			if err := json.Unmarshal([]byte(params), &i.Params); err != nil {
				return fmt.Errorf("launch parameters: %w", err)
			}
		}
		if overridable != "[]" {
			if err := json.Unmarshal([]byte(overridable), &i.Overridable); err != nil {
				return fmt.Errorf("overridable parameters: %w", err)
			}
		}
		all = append(all, i)
		return nil
	})
	return all, err
}
