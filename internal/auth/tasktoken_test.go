package auth

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/acl"
)

// oneRun knows one token.
type oneRun struct {
	hash   string
	run    TaskRun
	claims Claims
}

func (o oneRun) Find(_ context.Context, hash string) (TaskRun, Claims, error) {
	if hash != o.hash {
		return TaskRun{}, Claims{}, ErrTaskToken
	}
	return o.run, o.claims, nil
}

// Test33TaskToken: a task token proves one identity and no other; without tasks
// there are none, and no part of one is in what is printed.
func Test33TaskToken(t *testing.T) {
	text, hash := NewTaskToken()
	if other, _ := NewTaskToken(); other == text || !strings.HasPrefix(text, TaskTokenPrefix) {
		t.Fatal("the tokens are not drawn")
	}
	tokens := oneRun{hash, TaskRun{Task: "t1", Attempt: 2}, Claims{Kind: KindAgent, Workspaces: []string{"w"}, Impl: "echo", Spec: "1"}}
	keys, _ := NewKeys()
	v, err := NewVerifier(Options{Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.Verify(t.Context(), text); !errors.Is(err, ErrTaskToken) {
		t.Errorf("without tasks: %v", err)
	}
	v = v.WithTaskTokens(tokens)
	c, err := v.Verify(t.Context(), text)
	if err != nil || c.Run != tokens.run || c.KeyID != "t1" || c.Type != TypeTaskToken || !c.ExpiresAt.IsZero() {
		t.Fatalf("%+v, %v", c, err)
	}
	if s := c.String() + (Presented{token: seal(text)}).String(); strings.Contains(s, text[4:]) {
		t.Errorf("the token is shown: %s", s)
	}
	for id, want := range map[Identity]bool{
		{Kind: acl.Agent, Workspace: "w", Implementation: "echo", Specifier: "1"}:      true,
		{Kind: acl.Agent, Workspace: "w", Implementation: "echo", Specifier: "2"}:      false,
		{Kind: acl.Agent, Workspace: "v", Implementation: "echo", Specifier: "1"}:      false,
		{Kind: acl.Agent, Workspace: "w", Implementation: "other", Specifier: "1"}:     false,
		{Kind: acl.UniqueTask, Workspace: "w", Implementation: "echo", Specifier: "1"}: false,
	} {
		if _, err := c.Bind(id); (err == nil) != want {
			t.Errorf("%v: %v", id, err)
		}
	}
	for _, bad := range []string{TaskTokenPrefix, text + "x", text[:len(text)-1], TaskTokenPrefix + strings.Repeat("a", 300), "tt_a b", "tt_\xff"} {
		if _, err := v.Verify(t.Context(), bad); !errors.Is(err, ErrTaskToken) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
}

func FuzzTaskTokenHash(f *testing.F) {
	text, _ := NewTaskToken()
	for _, seed := range []string{text, "", "tt_", "tt_Az09-_", "tt_ ", "ak_x"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		hash, ok := TaskTokenHash(text)
		if ok != (hash != "") || ok && (len(hash) != 64 || !strings.HasPrefix(text, TaskTokenPrefix) || len(text) > maxTaskToken+len(TaskTokenPrefix)) {
			t.Fatalf("%q: %q, %v", text, hash, ok)
		}
	})
}
