package kv

import (
	"bytes"
	"crypto/sha256"
	"sort"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/wireerr"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// A set is stored as the sorted digests of its members, one behind the other:
// its members cannot be read, only be added and counted.

const (
	digestSize = 16
	// maxMembers bounds a set, since it is written as a whole.
	maxMembers = 10_000
)

func digest(member []byte) []byte {
	sum := sha256.Sum256(member)
	return sum[:digestSize]
}

func members(value []byte) int64 { return int64(len(value) / digestSize) }

// withMember returns a set with one more member; added is false if it has it.
func withMember(set, member []byte) (with []byte, added bool) {
	d := digest(member)
	n := len(set) / digestSize
	i := sort.Search(n, func(i int) bool { return bytes.Compare(set[i*digestSize:(i+1)*digestSize], d) >= 0 })
	at := i * digestSize
	if i < n && bytes.Equal(set[at:at+digestSize], d) {
		return set, false
	}
	with = make([]byte, 0, len(set)+digestSize)
	with = append(append(with, set[:at]...), d...)
	return append(with, set[at:]...), true
}

// addMember makes SET_ADD.
func (o *Operation) addMember(now time.Time, row *store.KVRow, answer *aetherv1.KVResponse) (store.KVChange, *wireerr.Error) {
	if err := wants(row, true); err != nil {
		return store.KVChange{}, err
	}
	var set []byte
	if row != nil {
		set = row.Value
	}
	with, added := withMember(set, o.op.GetValue())
	answer.CounterValue, answer.Applied = members(with), added
	switch {
	case !added:
		return store.KVChange{}, nil
	case members(with) > maxMembers:
		return store.KVChange{}, refusal(wireerr.QuotaExceeded, "the set has %d members, which is as many as a set may have", maxMembers)
	}
	c := o.update(now, row, with)
	c.Form = formSet
	return c, nil
}
