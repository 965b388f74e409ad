package tables

import (
	"context"
	"fmt"
	"strings"

	"github.com/aether-gateway/gateway/internal/store"
)

// Grants implements [store.Grants].
func (t *Tables) Grants(ctx context.Context, f store.GrantFilter, offset, limit int) (list []store.Grant, total int, err error) {
	if err := checkTexts(append([]string{f.SubjectType, f.SubjectID, f.AudienceType, f.AudienceID}, f.Delegates...)...); err != nil {
		return nil, 0, err
	}
	where, args := grantsWhere(f, t.now())
	var n int64
	err = t.db.Read(ctx, "list grants", func(r Reader) (err error) {
		n = 0
		if _, err = one(r, countGrants+where, args, &n); err != nil {
			return err
		}
		page := fmt.Sprintf(" order by created_at desc, id desc limit $%d offset $%d", len(args)+1, len(args)+2)
		list, _, err = readGrants(r, selectGrants+where+page, append(args[:len(args):len(args)], max(limit, 1), max(offset, 0))...)
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return list, int(n), nil
}

// grantsWhere is the condition of a filter, with its parameters.
func grantsWhere(f store.GrantFilter, now int64) (where string, args []any) {
	var all []string
	add := func(condition string, values ...any) {
		for _, v := range values {
			args = append(args, v)
			condition = strings.Replace(condition, "?", fmt.Sprintf("$%d", len(args)), 1)
		}
		all = append(all, condition)
	}
	for _, c := range [][2]string{
		{"subject_type", f.SubjectType}, {"subject_id", f.SubjectID}, {"audience_type", f.AudienceType}, {"audience_id", f.AudienceID},
	} {
		if c[1] != "" {
			add(c[0]+" = ?", c[1])
		}
	}
	if len(f.Delegates) > 0 {
		marks, values := make([]string, len(f.Delegates)), make([]any, len(f.Delegates))
		for i, d := range f.Delegates {
			marks[i], values[i] = "?", d
		}
		add("delegate_id in ("+strings.Join(marks, ", ")+")", values...)
	}
	if !f.Ended {
		add("revoked_at = 0 and expires_at > ?", now)
	}
	if len(all) == 0 {
		return "", nil
	}
	return " where " + strings.Join(all, " and "), args
}
