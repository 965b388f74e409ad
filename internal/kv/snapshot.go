package kv

import (
	"context"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/store"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

const (
	// maxSnapshot is how many bytes of keys and values a snapshot has. Each is in
	// it twice, for clients that read either pair of fields.
	maxSnapshot = 512 << 10
	// maxSnapshotKeys bounds, of each of the two spaces, what is looked at.
	maxSnapshotKeys = 20_000
)

// Snapshot returns what an agent or task begins with: the keys of its
// implementation, in its workspace and in all. Sets are not among them, nor what
// a rule denies. If the store does not answer, the snapshot is empty, and
// truncated as one that has too many keys: what is missing is read by LIST.
func (s *Service) Snapshot(ctx context.Context, c *Caller) *aetherv1.ConfigSnapshot {
	here, refused := s.place(c, aetherv1.KVOperation_SCOPE_WORKSPACE, "", "")
	everywhere, refused2 := s.place(c, aetherv1.KVOperation_SCOPE_GLOBAL, "", "")
	if refused != nil || refused2 != nil {
		return &aetherv1.ConfigSnapshot{}
	}
	rows, cut, err := s.o.Store.SnapshotKV(ctx, here.space, everywhere.space, formValue, maxSnapshotKeys, maxSnapshot)
	if err != nil {
		s.o.Logger.Warn("an agent begins without its keys", "identity", c.Identity, "error", err)
		return &aetherv1.ConfigSnapshot{Truncated: true}
	}
	of := func(pl *place, rows []store.KVRow) map[string][]byte {
		if len(rows) == 0 || s.denied(c, acl.ActionKVRead, pl.name) {
			return nil
		}
		keys := make(map[string][]byte, len(rows))
		for i := range rows {
			if !s.denied(c, acl.ActionKVRead, pl.name+"::"+rows[i].Key) {
				keys[rows[i].Key] = rows[i].Value
			}
		}
		return keys
	}
	ws, global := of(&here, rows[0]), of(&everywhere, rows[1])
	//nolint:staticcheck // clients read either pair of fields
	return &aetherv1.ConfigSnapshot{Kv: ws, WorkspaceExclusiveKv: ws, GlobalKv: global, GlobalExclusiveKv: global, Truncated: cut}
}
