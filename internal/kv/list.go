package kv

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/wireerr"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

const (
	// defaultPage and maxPage are how many keys a page has, pageBytes how much of
	// keys and values, unless it is one key alone: a client takes 4 MiB at once.
	defaultPage = 1000
	maxPage     = 10_000
	pageBytes   = 1 << 20
)

// A cursor is the mark of its listing and the last key of its page. The mark
// keeps clients from mixing up listings; it need not be secret, since what a
// listing shows is decided anew with each page.
const markSize = 8

// listing is what the pages of one listing have in common.
func (o *Operation) listing() string {
	sp := o.place.space
	return strings.Join([]string{itoa(int64(sp.Scope)), sp.Workspace, sp.Implementation, sp.Owner, o.op.GetKey()}, "\x00")
}

func markOf(listing string) []byte {
	sum := sha256.Sum256([]byte(listing))
	return sum[:markSize]
}

func cursorOf(listing, key string) string {
	return base64.RawURLEncoding.EncodeToString(append(markOf(listing), key...))
}

// parseCursor returns the key that a page begins behind.
func parseCursor(cursor, listing, prefix string) (after string, _ *wireerr.Error) {
	if cursor == "" {
		return "", nil
	}
	if len(cursor) <= base64.RawURLEncoding.EncodedLen(markSize+MaxKey) {
		b, err := base64.RawURLEncoding.Strict().DecodeString(cursor)
		if err == nil && len(b) > markSize && string(b[:markSize]) == string(markOf(listing)) && strings.HasPrefix(string(b[markSize:]), prefix) {
			after = string(b[markSize:])
			if checkKey(after, true) == nil && strings.ToValidUTF8(after, "") == after {
				return after, nil
			}
		}
	}
	return "", refusal(wireerr.InvalidArgument, "cursor is not one of this listing: it goes with the same scope, owner and prefix")
}

// list makes LIST. Keys that a rule denies are left out.
func (o *Operation) list(ctx context.Context) (*aetherv1.KVResponse, *wireerr.Error) {
	limit := int(min(o.op.GetLimit(), maxPage))
	if limit == 0 {
		limit = defaultPage
	}
	rows, more, err := o.s.o.Store.ListKV(ctx, o.place.space, o.op.GetKey(), o.after, limit, pageBytes)
	if err != nil {
		return nil, o.s.failed("LIST", err, true)
	}
	answer := &aetherv1.KVResponse{Success: true, HasMore: more, KvMap: make(map[string][]byte, len(rows))}
	for i := range rows {
		r := &rows[i]
		if o.s.denied(o.caller, acl.ActionKVRead, o.place.name+"::"+r.Key) {
			continue
		}
		answer.Keys = append(answer.Keys, r.Key)
		if r.Form == formValue {
			answer.KvMap[r.Key] = r.Value
		}
	}
	if more {
		answer.NextCursor = cursorOf(o.listing(), rows[len(rows)-1].Key)
	}
	return answer, nil
}
