package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// now is the time of all tests.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const testSecret = "a secret of more than thirty-two bytes"

func testKey(t testing.TB, id, secret string) Key {
	t.Helper()
	k, err := NewKey(id, []byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// setup is a verifier with one key, "k1", and the clock at now.
func setup(t testing.TB, change ...func(*Options)) (*Verifier, Key) {
	t.Helper()
	key := testKey(t, "k1", testSecret)
	keys, err := NewKeys(key)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Keys: keys, Clock: func() time.Time { return now }}
	for _, c := range change {
		c(&o)
	}
	v, err := NewVerifier(o)
	if err != nil {
		t.Fatal(err)
	}
	return v, key
}

func agentClaims() Claims {
	return Claims{
		Kind: KindAgent, Workspaces: []string{"prod"}, Impl: "coder", Spec: "1",
		IssuedAt: now, ExpiresAt: now.Add(time.Hour),
	}
}

func mint(t testing.TB, key Key, c Claims) string {
	t.Helper()
	token, err := Mint(key, c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// goodPayload is what a valid token says, to be changed by a test.
func goodPayload() map[string]any {
	return map[string]any{
		"sub": "s", "kind": "agent", "workspaces": []string{"prod"}, "impl": "coder", "spec": "1",
		"iss": DefaultIssuer, "aud": DefaultAudience, "jti": "1", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
}

// forge makes a token of any header and payload, signed by HMAC-SHA-256,
// without the code under test.
func forge(t testing.TB, header, payload any, secret string) string {
	t.Helper()
	part := func(v any) string {
		raw, isText := v.(string)
		if !isText {
			b, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			raw = string(b)
		}
		return base64.RawURLEncoding.EncodeToString([]byte(raw))
	}
	text := part(header) + "." + part(payload)
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

func header(alg string) map[string]any { return map[string]any{"alg": alg, "typ": "JWT", "kid": "k1"} }

// refused checks that a token is refused for that reason, and that the error
// shows nothing of it.
func refused(t *testing.T, v *Verifier, name, token string, want error) {
	t.Helper()
	cred, err := v.Verify(context.Background(), token)
	if !errors.Is(err, want) || cred != nil {
		t.Errorf("%s: %v, want %v", name, err, want)
	}
	if err == nil {
		return
	}
	for _, part := range strings.Split(token, ".") {
		if len(part) > 8 && strings.Contains(err.Error(), part) {
			t.Errorf("%s: the error shows a part of the token: %v", name, err)
		}
	}
}
