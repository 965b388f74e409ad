package auth

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/acl"
	"github.com/aether-gateway/gateway/internal/address"
)

// FuzzVerify gives arbitrary text to the verifier: only what was signed passes.
func FuzzVerify(f *testing.F) {
	v, key := setup(f)
	claims := agentClaims()
	claims.ID = "1" // the same token in every process of the fuzzer
	good := mint(f, key, claims)
	f.Add(good)
	f.Add("")
	f.Add("a.b.c")
	f.Add(forge(f, header("none"), goodPayload(), ""))
	f.Add(forge(f, header("RS256"), goodPayload(), testSecret))
	f.Add(good[:len(good)-1])
	f.Fuzz(func(t *testing.T, token string) {
		cred, err := v.Verify(context.Background(), token)
		if (err == nil) != (token == good) {
			t.Fatalf("%q: %v", token, err)
		}
		if (err == nil) != (cred != nil) {
			t.Fatalf("%v and %v", cred, err)
		}
		if len(token) > 16 && err != nil && strings.Contains(err.Error(), token) {
			t.Fatalf("the error shows the token: %v", err)
		}
		if in, inspectErr := Inspect(context.Background(), token, v); inspectErr == nil && (in.Err == nil) != (err == nil) {
			t.Fatalf("Inspect says %v, Verify %v", in.Err, err)
		}
	})
}

// FuzzClaims signs arbitrary payloads: whatever is accepted makes an identity
// that the rest of the program can rely on.
func FuzzClaims(f *testing.F) {
	v, _ := setup(f)
	for _, p := range []map[string]any{goodPayload(), {"kind": "user", "user": "u", "exp": now.Unix() + 60}, {"workspaces": "*"}} {
		b, err := json.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b))
	}
	f.Add("null")
	f.Add(`{"exp":1e999}`)
	f.Add(`{"workspaces":[null],"kind":"agent"}`)
	f.Fuzz(func(t *testing.T, payload string) {
		if len(payload) > 4096 {
			return
		}
		cred, err := v.Verify(context.Background(), forge(t, header(HS256), payload, testSecret))
		if err != nil {
			if Code(err).String() != "Unauthenticated" {
				t.Fatalf("status %s for %v", Code(err), err)
			}
			return
		}
		if cred.ExpiresAt.Before(now.Add(-DefaultLeeway)) || cred.Issuer != DefaultIssuer {
			t.Fatalf("%+v", cred.Claims)
		}
		for _, ws := range cred.Scope().Names() {
			if address.ValidWorkspace(ws) != nil {
				t.Fatalf("workspace %q", ws)
			}
		}
		for _, k := range acl.Kinds() {
			id := Identity{Kind: k, Workspace: "prod", Implementation: cred.Impl, Specifier: cred.Spec, UserID: cred.User, Window: "w"}
			if p, err := cred.Bind(id); err == nil && p.Kind.WorkspaceScoped() && p.Workspace != "prod" {
				t.Fatalf("%+v", p)
			}
		}
	})
}

func FuzzInspect(f *testing.F) {
	_, key := setup(f)
	f.Add(mint(f, key, agentClaims()))
	f.Add("..")
	f.Add("e30.e30.")
	f.Fuzz(func(t *testing.T, token string) {
		in, err := Inspect(context.Background(), token, nil)
		if err != nil {
			return
		}
		if !json.Valid(in.Header) || !json.Valid(in.Payload) || in.Checked {
			t.Fatalf("%+v", in)
		}
	})
}

// FuzzGlob compares the matcher with a regular expression of the same meaning.
func FuzzGlob(f *testing.F) {
	f.Add("a*b", "axb")
	f.Add("**", "")
	f.Add("*a*a*", "aa")
	f.Add("[*", "[x")
	f.Add("\xff*", "\xff\xfe")
	f.Fuzz(func(t *testing.T, pattern, spec string) {
		if len(pattern) > 128 || len(spec) > 128 {
			return
		}
		// Bytes as code points, so that invalid UTF-8 means the same to both.
		wide := func(s string) string {
			var b strings.Builder
			for i := range len(s) {
				b.WriteRune(rune(s[i]))
			}
			return b.String()
		}
		quoted := strings.ReplaceAll(regexp.QuoteMeta(wide(pattern)), `\*`, `.*`)
		want := regexp.MustCompile(`(?s)\A` + quoted + `\z`).MatchString(wide(spec))
		if got := matchSpec(pattern, spec); got != want {
			t.Fatalf("%q and %q: %v", pattern, spec, got)
		}
	})
}
