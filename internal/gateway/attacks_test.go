package gateway_test

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// forged is a token with a header of the attacker's, signed with whatever they
// have.
func forged(t *testing.T, header map[string]any, claims jwt.MapClaims, method jwt.SigningMethod, key any) string {
	t.Helper()
	token := jwt.NewWithClaims(method, claims)
	for name, value := range header {
		token.Header[name] = value
	}
	text, err := token.SignedString(key)
	check(t, err)
	return text
}

// TestForgedCredentials: through Connect and through the operators' service, with a
// key pair and a secret beside each other, as an attacker would come.
func TestForgedCredentials(t *testing.T) {
	t.Parallel()
	pair, err := rsa.GenerateKey(rand.Reader, 2048)
	check(t, err)
	der, err := x509.MarshalPKIXPublicKey(pair.Public())
	check(t, err)
	g := gatewaytest.Start(t, verifying(t, func(o *auth.Options) {
		public, err := auth.NewPublicKey("pair", pair.Public())
		check(t, err)
		secret, err := auth.NewKey("test", []byte(gatewaytest.Secret))
		check(t, err)
		o.Keys, err = auth.NewKeys(secret, public)
		check(t, err)
	}), func(o *gateway.Options) { o.Failures = nil })
	claims := func(change func(jwt.MapClaims)) jwt.MapClaims {
		c := jwt.MapClaims{
			"iss": auth.DefaultIssuer, "aud": auth.DefaultAudience, "sub": "mallory", "exp": time.Now().Add(time.Hour).Unix(),
			"kind": "agent", "workspaces": []string{"w"}, "impl": "echo", "spec": "*",
		}
		if change != nil {
			change(c)
		}
		return c
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	good, secret := claims(nil), []byte(gatewaytest.Secret)
	segment := func(v any) string {
		b, err := json.Marshal(v)
		check(t, err)
		return base64.RawURLEncoding.EncodeToString(b)
	}
	unsigned := func(alg string) string {
		return segment(map[string]any{"alg": alg, "kid": "test", "typ": "JWT"}) + "." + segment(good) + "."
	}
	real := forged(t, map[string]any{"kid": "test"}, good, jwt.SigningMethodHS256, secret)
	parts := strings.Split(real, ".")
	tokens := map[string]string{
		"none": unsigned("none"), "None": unsigned("None"), "NONE": unsigned("NONE"), "no algorithm": unsigned(""),
		"the public key as a secret, in PEM": forged(t, map[string]any{"kid": "pair"}, good, jwt.SigningMethodHS256, public),
		"the public key as a secret, in DER": forged(t, map[string]any{"kid": "pair"}, good, jwt.SigningMethodHS256, der),
		"the same without a kid":             forged(t, nil, good, jwt.SigningMethodHS256, public),
		"the modulus as a secret":            forged(t, map[string]any{"kid": "pair"}, good, jwt.SigningMethodHS256, pair.N.Bytes()),
		"the secret's kid, the pair's key":   forged(t, map[string]any{"kid": "test"}, good, jwt.SigningMethodRS256, pair),
		"another hash":                       forged(t, map[string]any{"kid": "test"}, good, jwt.SigningMethodHS512, secret),
		"PSS for PKCS #1":                    forged(t, map[string]any{"kid": "pair"}, good, jwt.SigningMethodPS256, pair),
		"its own key in the header": forged(t, map[string]any{
			"kid": "pair", "jwk": map[string]any{"kty": "oct", "k": base64.RawURLEncoding.EncodeToString(public)}, "jku": "http://127.0.0.1/keys",
		}, good, jwt.SigningMethodHS256, public),
		"another audience":                 forged(t, map[string]any{"kid": "test"}, claims(func(c jwt.MapClaims) { c["aud"] = "another" }), jwt.SigningMethodHS256, secret),
		"another issuer":                   forged(t, map[string]any{"kid": "test"}, claims(func(c jwt.MapClaims) { c["iss"] = "\u0430ether" }), jwt.SigningMethodHS256, secret),
		"other claims, the same signature": parts[0] + "." + segment(claims(func(c jwt.MapClaims) { c["kind"] = "operator" })) + "." + parts[2],
		"claims in capitals": forged(t, map[string]any{"kid": "test"}, claims(func(c jwt.MapClaims) {
			delete(c, "kind")
			c["Kind"], c["KIND"] = "agent", "operator"
		}), jwt.SigningMethodHS256, secret),
		"an API key that is a path":     "ak_../../../../etc/passwd",
		"an API key that is SQL":        "ak_' or '1'='1",
		"an API key of the right form":  "ak_aaaaaaaaaaaaaaaa_" + strings.Repeat("a", 52),
		"an API key without an end":     "ak_" + strings.Repeat("a", 100_000),
		"a token without an end":        strings.Repeat("a", 60_000),
		"a token with a byte of nought": real + "\x00",
	}
	for _, kid := range []string{"../../../dev/null", "/proc/self/environ", "' or '1'='1' --", "'; drop table api_keys; --", "test\x00", "TEST", "t\u0435st", "test ", " test", strings.Repeat("k", 5000)} {
		tokens["kid "+kid] = forged(t, map[string]any{"kid": kid}, good, jwt.SigningMethodHS256, secret)
	}
	conn := dialAs(t, g.Addr, insecure.NewCredentials())
	ctx := within(t, 3*patience)
	for what, token := range tokens {
		if err := login(ctx, conn, token, gatewaytest.AgentInit("w", "echo", "1")); status.Code(err) != codes.Unauthenticated {
			t.Errorf("%.60q connected: %v", what, err)
		}
		if strings.ContainsAny(token, "\x00") {
			continue // no metadata takes it
		}
		if _, err := gatewaytest.Operator(t, g.Addr, token).ServerInfo(ctx, &adminv1.ServerInfoRequest{}); err == nil {
			t.Errorf("%.60q operates", what)
		}
	}

	// A name that only looks like another one is another one.
	for _, init := range []*aetherv1.InitConnection{
		gatewaytest.AgentInit("w", "\u0435\u0441h\u043e", "1"), gatewaytest.AgentInit("w", "echo\u200b", "1"), gatewaytest.AgentInit("w", "\uff45\uff43\uff48\uff4f", "1"),
		gatewaytest.AgentInit("\uff57", "echo", "1"), gatewaytest.AgentInit("W", "echo", "1"), gatewaytest.AgentInit("w\u0301", "echo", "1"),
	} {
		if err := login(ctx, conn, real, init); status.Code(err) != codes.PermissionDenied {
			t.Errorf("as %v: %v", init.GetAgent(), err)
		}
	}
	if err := login(ctx, conn, real, gatewaytest.AgentInit("w", "echo", "1")); err != nil {
		t.Errorf("the good token: %v", err)
	}
}

// Metadata that no client needs is refused before anything is kept of it: a
// stream could bring 16 MiB before anybody had asked who its client was.
func TestHugeMetadata(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	conn := dialAs(t, g.Addr, insecure.NewCredentials())
	tell := func(size int) error {
		ctx := metadata.AppendToOutgoingContext(context.Background(), "x-junk", strings.Repeat("x", size))
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		_, err := adminv1.NewAdminClient(conn).ServerInfo(ctx, &adminv1.ServerInfoRequest{}, grpc.WaitForReady(true))
		return err
	}
	if err := tell(30_000); status.Code(err) != codes.Unauthenticated {
		t.Errorf("30 kB: %v", err)
	}
	if err := tell(1 << 20); status.Code(err) == codes.Unauthenticated {
		t.Error("1 MiB was taken")
	}
}

// TestRemovedWhileConnecting: a member who is removed, or a token that is revoked,
// while the session begins: it does not begin, or ends.
func TestRemovedWhileConnecting(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	op := gatewaytest.Operator(t, g.Addr, g.OperatorToken("ops"))
	ctx := within(t, 3*patience)
	agent := gatewaytest.MustDial(t, g.Addr, g.AgentToken("w", "echo"), gatewaytest.AgentInit("w", "echo", "1"))
	for i := range 12 {
		user := fmt.Sprint("u", i)
		token := g.Token(auth.Claims{Kind: auth.KindUser, User: user, Workspaces: []string{"w"}, ID: user})
		init := gatewaytest.UserInit(user, "1")
		init.Workspace = "w"
		var peer *gatewaytest.Peer
		var err, removed error
		var both sync.WaitGroup
		both.Go(func() { peer, err = gatewaytest.Dial(t, g.Addr, token, init) })
		both.Go(func() {
			switch i % 2 {
			case 0:
				_, removed = op.RuleMember(ctx, &adminv1.RuleMemberRequest{Workspace: "w", User: user, Ruling: "out"})
			case 1:
				_, removed = op.Revoke(ctx, &adminv1.RevokeRequest{What: "token", Id: user})
			}
		})
		both.Wait()
		check(t, removed)
		agent.Send(send("us::"+user+"::1", "late", user))
		agent.Until(func(m *aetherv1.DownstreamMessage) bool { return m.GetReceipt() != nil || m.GetError() != nil })
		if err == nil {
			err = peer.Ended(nil)
		}
		if code := status.Code(err); code != codes.PermissionDenied && code != codes.Unauthenticated {
			t.Errorf("%s: ended with %v", user, err)
		}
	}
}
