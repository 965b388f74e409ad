package tables

import (
	"context"

	"github.com/aether-gateway/gateway/internal/store"
)

var _ store.Placement = (*Tables)(nil)

const (
	// settle writes what is there, so that it can return it.
	settle = `insert into settings (name, value, changed_at) values ($1, $2, $3)
		on conflict (name) do update set value = settings.value returning value`
	// replace also takes what is replaced already: a call may be repeated.
	replace = `update settings set value = $3, changed_at = $4 where name = $1 and value in ($2, $3)`
)

// placementSetting is the name of the placement's fingerprint.
const placementSetting = "placement"

// SettlePlacement implements [store.Placement].
func (t *Tables) SettlePlacement(ctx context.Context, fingerprint string) (string, error) {
	if err := checkTexts(fingerprint); err != nil {
		return "", err
	}
	now := t.now()
	var stored string
	err := t.db.Write(ctx, "settle the placement", func(w Writer) error {
		_, err := one(w, settle, []any{placementSetting, fingerprint, now}, &stored)
		return err
	})
	if err != nil {
		return "", err
	}
	return stored, nil
}

// ReplacePlacement implements [store.Placement].
func (t *Tables) ReplacePlacement(ctx context.Context, from, to string) (bool, error) {
	if err := checkTexts(from, to); err != nil {
		return false, err
	}
	now := t.now()
	var changed int64
	err := t.db.Write(ctx, "replace the placement", func(w Writer) (err error) {
		changed, err = w.Exec(replace, placementSetting, from, to, now)
		return err
	})
	return err == nil && changed > 0, err
}
