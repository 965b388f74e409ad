package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"
)

// secret is the bytes of the key file that all gateways here accept. It
// protects nothing.
const secret = "a secret of tests, which protects nothing at all"

var keyFile string

// tokens remembers what `gateway token create` printed.
var tokens struct {
	sync.Mutex
	made map[string]func() (string, error)
}

// createToken returns the token that `gateway token create` makes for flags,
// which it is asked for once.
func createToken(flags ...string) (string, error) {
	name := strings.Join(flags, " ")
	tokens.Lock()
	if tokens.made == nil {
		tokens.made = map[string]func() (string, error){}
	}
	get := tokens.made[name]
	if get == nil {
		get = sync.OnceValues(func() (string, error) {
			args := append([]string{"token", "create", "--key-file", keyFile}, flags...)
			stdout, stderr, code, err := command(nil, args...)
			if err != nil || code != 0 {
				return "", fmt.Errorf("gateway token create %s: exit %d, %w\n%s", name, code, err, stderr)
			}
			token, ok := strings.CutSuffix(stdout, "\n")
			if !ok || strings.ContainsAny(token, " \n") {
				return "", fmt.Errorf("gateway token create %s printed %q, not the token alone", name, stdout)
			}
			return token, nil
		})
		tokens.made[name] = get
	}
	tokens.Unlock()
	return get()
}

// forged is a token as an attacker, or a clock, may make it.
type forged struct {
	header map[string]any
	claims map[string]any
	key    string
}

// agentClaims are those of a good token for ag::{ws}::i::{any}.
func agentClaims(ws string) forged {
	now := time.Now()
	return forged{
		header: map[string]any{"alg": "HS256", "typ": "JWT"},
		claims: map[string]any{
			"sub": "test", "kind": "agent", "workspaces": []string{ws}, "impl": "i", "spec": "*", "jti": "1",
			"iss": "aether", "aud": "aether", "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		},
		key: secret,
	}
}

// sign encodes the token, with an HMAC whatever the header says.
func (f forged) sign() string {
	part := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		return base64.RawURLEncoding.EncodeToString(b)
	}
	text := part(f.header) + "." + part(f.claims)
	if f.header["alg"] == "none" {
		return text + "."
	}
	mac := hmac.New(sha256.New, []byte(f.key))
	mac.Write([]byte(text))
	return text + "." + base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}
