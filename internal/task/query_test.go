package task

import (
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/store"
)

// A page token is read as it was written, for its own list only, and nothing
// else is taken for one.
func FuzzDecodePage(f *testing.F) {
	mine, other := listing(&store.TaskFilter{Type: "a"}), listing(&store.TaskFilter{Type: "b"})
	page := store.TaskPage{CreatedAt: time.UnixMilli(1_800_000_000_000), ID: "id"}
	token := encodePage(page, mine)
	for _, seed := range []string{"", token, encodePage(page, other), "AAAA", "%", token + "A"} {
		f.Add(seed)
	}
	if got, err := decodePage(token, mine); err != nil || got != page {
		f.Fatal(got, err)
	}
	if _, err := decodePage(token, other); err == nil {
		f.Fatal("the token of another list was taken")
	}
	f.Fuzz(func(t *testing.T, token string) {
		got, err := decodePage(token, mine)
		if err != nil || token == "" {
			return
		}
		if again, err := decodePage(encodePage(got, mine), mine); err != nil || !again.CreatedAt.Equal(got.CreatedAt) || again.ID != got.ID {
			t.Errorf("%q: %v, then %v, %v", token, got, again, err)
		}
	})
}
