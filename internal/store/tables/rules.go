package tables

import (
	"context"
	"errors"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

var _ store.Rules = (*Tables)(nil)

const (
	selectRules = `select id, effect, principal, action, address, grammar, created_by, note, created_at from rules `
	selectAll   = selectRules + `order by id`
	selectRule  = selectRules + `where id = $1`
	selectSame  = selectRules + `where effect = $1 and principal = $2 and action = $3 and address = $4 and grammar = $5`
	countRules  = `select count(*) from rules`
	insertRule  = `insert into rules (id, effect, principal, action, address, grammar, created_by, note, created_at)
		values ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	deleteRule = `delete from rules where id = $1`
)

// rulesCounter numbers the changes of rules.
const rulesCounter = "rules"

// errUnchanged undoes a transaction that found nothing to do.
var errUnchanged = errors.New("nothing to do")

// AddRule implements [store.Rules].
func (t *Tables) AddRule(ctx context.Context, r store.Rule, limit int) (store.Rule, bool, error) {
	if r.Effect != "allow" && r.Effect != "deny" {
		return store.Rule{}, false, store.ErrEffect
	}
	if err := checkTexts(r.Principal, r.Action, r.Address, r.Grammar, r.CreatedBy, r.Note); err != nil {
		return store.Rule{}, false, err
	}
	now := t.now()
	r.CreatedAt = time.UnixMilli(now)
	var same []store.Rule
	err := t.db.Transact(ctx, "add a rule", func(w Writer) (err error) {
		// The counter's lock makes those who add wait for each other, so that
		// none is counted too few.
		if r.ID, err = take(w, rulesCounter, 1); err != nil {
			return err
		}
		if same, err = readRules(w, selectSame, r.Effect, r.Principal, r.Action, r.Address, r.Grammar); err != nil {
			return err
		}
		if len(same) > 0 {
			return errUnchanged
		}
		var count int64
		if _, err = one(w, countRules, nil, &count); err != nil {
			return err
		}
		if count >= int64(limit) {
			return store.ErrFull
		}
		changed, err := w.Exec(insertRule, r.ID, r.Effect, r.Principal, r.Action, r.Address, r.Grammar, r.CreatedBy, r.Note, now)
		return tell(w, changed, err, store.SubjectRules)
	})
	switch {
	case errors.Is(err, errUnchanged):
		return same[0], false, nil
	case errors.Is(err, store.ErrFull):
		return store.Rule{}, false, store.ErrFull
	case err != nil:
		return store.Rule{}, false, err
	}
	return r, true, nil
}

// RemoveRule implements [store.Rules].
func (t *Tables) RemoveRule(ctx context.Context, id int64) (store.Rule, bool, error) {
	var found []store.Rule
	err := t.db.Transact(ctx, "remove a rule", func(w Writer) (err error) {
		if _, err = take(w, rulesCounter, 1); err != nil {
			return err
		}
		if found, err = readRules(w, selectRule, id); err != nil {
			return err
		}
		if len(found) == 0 {
			return errUnchanged
		}
		changed, err := w.Exec(deleteRule, id)
		return tell(w, changed, err, store.SubjectRules)
	})
	switch {
	case errors.Is(err, errUnchanged):
		return store.Rule{}, false, nil
	case err != nil:
		return store.Rule{}, false, err
	}
	return found[0], true, nil
}

// Rules implements [store.Rules].
func (t *Tables) Rules(ctx context.Context) ([]store.Rule, int64, error) {
	var version int64
	var all []store.Rule
	err := t.db.Read(ctx, "read rules", func(r Reader) (err error) {
		// The counter first: what it has counted by now, the list shows.
		version = 0
		if _, err = one(r, selectCounter, []any{rulesCounter}, &version); err != nil {
			return err
		}
		all, err = readRules(r, selectAll)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return all, version, nil
}

// RulesVersion implements [store.Rules].
func (t *Tables) RulesVersion(ctx context.Context) (version int64, err error) {
	err = t.db.Read(ctx, "read the version of the rules", func(r Reader) error {
		version = 0
		_, err := one(r, selectCounter, []any{rulesCounter}, &version)
		return err
	})
	return version, err
}

func readRules(r Reader, query string, args ...any) (all []store.Rule, err error) {
	err = r.Query(query, args, func(scan Scan) error {
		var rule store.Rule
		var at int64
		err := scan(&rule.ID, &rule.Effect, &rule.Principal, &rule.Action, &rule.Address, &rule.Grammar, &rule.CreatedBy, &rule.Note, &at)
		rule.CreatedAt = time.UnixMilli(at)
		all = append(all, rule)
		return err
	})
	return all, err
}
