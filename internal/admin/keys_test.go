package admin_test

import (
	"context"
	"slices"
	"testing"
	"time"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/admin"
	"github.com/aether-gateway/gateway/internal/peers"
	"github.com/aether-gateway/gateway/internal/presence/local"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/trust"
)

// keyList keeps keys as they were made.
type keyList struct {
	admin.Credentials
	keys []trust.Key
}

func (l *keyList) ListKeys(_ context.Context, after store.KeyPlace, limit int) (list []trust.Key, err error) {
	for _, k := range l.keys {
		if len(list) < limit && (k.CreatedAt.After(after.CreatedAt) || k.CreatedAt.Equal(after.CreatedAt) && k.ID > after.ID) {
			list = append(list, k)
		}
	}
	return list, nil
}

// A key that goes away between two pages took the place of one that was not
// listed: the pages were counted from the beginning.
func TestPagesOfKeysLeaveNoneOut(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1000)
	l := &keyList{keys: []trust.Key{
		{ID: "b", CreatedAt: at}, {ID: "c", CreatedAt: at}, {ID: "a", CreatedAt: at.Add(time.Second)}, {ID: "d", CreatedAt: at.Add(time.Second)},
	}}
	asked := peers.New(local.New(nil), nil)
	t.Cleanup(asked.Close)
	s := admin.New(admin.Options{Credentials: l, Peers: asked})
	t.Cleanup(s.Close)
	var got []string
	for r := (&adminv1.ListKeysRequest{PageSize: 1}); ; {
		page, err := s.ListKeys(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range page.GetKeys() {
			got = append(got, k.GetKeyId())
		}
		if r.PageToken = page.GetNextPageToken(); r.PageToken == "" {
			break
		}
		if len(got) == 2 {
			l.keys = l.keys[1:]
		}
	}
	if want := []string{"b", "c", "a", "d"}; !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	for _, token := range []string{"1", ".", "x.y", "-"} {
		if _, err := s.ListKeys(context.Background(), &adminv1.ListKeysRequest{PageToken: token}); (err == nil) != (token == "1") {
			t.Errorf("page token %q: %v", token, err)
		}
	}
}
