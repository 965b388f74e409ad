package auth

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/aether-gateway/gateway/internal/acl"
)

func TestMintedTokenIsGood(t *testing.T) {
	t.Parallel()
	v, key := setup(t)
	c, err := v.Verify(context.Background(), mint(t, key, agentClaims()))
	if err != nil {
		t.Fatal(err)
	}
	if c.Kind != KindAgent || c.Impl != "coder" || c.Spec != "1" || c.Issuer != "aether" || len(c.Audience) != 1 || c.Audience[0] != "aether" ||
		c.ID == "" || c.Subject == "" || !c.IssuedAt.Equal(now) || !c.ExpiresAt.Equal(now.Add(time.Hour)) || !c.Scope().Covers("prod") {
		t.Errorf("%+v", c.Claims)
	}
	if c.IsOperator() || len(c.Roles) != 0 {
		t.Error("an agent has more than it was given")
	}
}

// Tokens of other issuers have no kid, or write claims in another allowed form.
func TestForeignTokens(t *testing.T) {
	t.Parallel()
	v, _ := setup(t)
	for name, change := range map[string]func(header, payload map[string]any){
		"no kid":            func(h, _ map[string]any) { delete(h, "kid") },
		"no typ":            func(h, _ map[string]any) { delete(h, "typ") },
		"aud list":          func(_, p map[string]any) { p["aud"] = []string{"other", DefaultAudience} },
		"fractional exp":    func(_, p map[string]any) { p["exp"] = float64(now.Unix()) + 0.5 },
		"unknown claims":    func(_, p map[string]any) { p["email"] = "a@b"; p["Kind"] = "operator" },
		"no sub, jti, iat":  func(_, p map[string]any) { delete(p, "sub"); delete(p, "jti"); delete(p, "iat") },
		"expired in leeway": func(_, p map[string]any) { p["exp"] = now.Unix() - 9 },
		"nbf in leeway":     func(_, p map[string]any) { p["nbf"] = now.Unix() + 9 },
	} {
		h, p := header(HS256), goodPayload()
		change(h, p)
		if c, err := v.Verify(context.Background(), forge(t, h, p, testSecret)); err != nil || c.Kind != KindAgent {
			t.Errorf("%s: %v", name, err)
		}
	}
	wide := goodPayload()
	maps.Copy(wide, map[string]any{"kind": "service", "workspaces": "*"})
	c, err := v.Verify(context.Background(), forge(t, header(HS256), wide, testSecret))
	if err != nil || !c.Scope().IsAll() {
		t.Errorf("bare star: %v", err)
	}
	wide["workspaces"] = []string{"*"}
	if c, err = v.Verify(context.Background(), forge(t, header(HS256), wide, testSecret)); err != nil || !c.Scope().IsAll() {
		t.Errorf("list of a star: %v", err)
	}
	delete(wide, "workspaces")
	if c, err = v.Verify(context.Background(), forge(t, header(HS256), wide, testSecret)); err != nil || !c.Scope().IsEmpty() {
		t.Errorf("no workspaces must be none: %v", err)
	}
}

// The last character of a signature has two bits that say nothing. A decoder
// that ignores them would take four texts for one token, which defeats lists of
// refused tokens.
func TestSignatureHasOneSpelling(t *testing.T) {
	t.Parallel()
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	v, key := setup(t)
	good := mint(t, key, agentClaims())
	last := strings.IndexByte(alphabet, good[len(good)-1])
	for i := 1; i < 4; i++ {
		refused(t, v, "another spelling", good[:len(good)-1]+alphabet[last+i:last+i+1], ErrMalformedToken)
	}
}

func TestAttacks(t *testing.T) {
	t.Parallel()
	v, key := setup(t)
	good := mint(t, key, agentClaims())
	parts := strings.Split(good, ".")
	text := func(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

	for name, c := range map[string]struct {
		token string
		want  error
	}{
		"empty":                 {"", ErrMalformedToken},
		"dots":                  {"..", ErrMalformedToken},
		"two parts":             {parts[0] + "." + parts[1], ErrMalformedToken},
		"four parts":            {good + ".x", ErrMalformedToken},
		"line end":              {good + "\n", ErrMalformedToken},
		"padding":               {good + "=", ErrMalformedToken},
		"not base64":            {"!." + parts[1] + "." + parts[2], ErrMalformedToken},
		"header not JSON":       {text("x") + "." + parts[1] + "." + parts[2], ErrMalformedToken},
		"header a list":         {forge(t, "[]", goodPayload(), testSecret), ErrMalformedToken},
		"header null":           {forge(t, "null", goodPayload(), testSecret), ErrAlgorithm},
		"oversized":             {parts[0] + "." + strings.Repeat("A", MaxToken) + "." + parts[2], ErrTokenTooLarge},
		"no signature":          {parts[0] + "." + parts[1] + ".", ErrSignature},
		"truncated signature":   {good[:len(good)-3], ErrSignature},
		"other payload":         {parts[0] + "." + text(`{"kind":"operator"}`) + "." + parts[2], ErrSignature},
		"wrong key":             {forge(t, header(HS256), goodPayload(), "another secret of thirty-two bytes!!"), ErrSignature},
		"wrong key without kid": {forge(t, map[string]any{"alg": HS256}, goodPayload(), "another secret of thirty-two bytes!!"), ErrSignature},
		"empty secret":          {forge(t, header(HS256), goodPayload(), ""), ErrSignature},
		"alg none":              {text(`{"alg":"none","kid":"k1"}`) + "." + parts[1] + ".", ErrAlgorithm},
		"alg none, signed":      {forge(t, header("none"), goodPayload(), testSecret), ErrAlgorithm},
		"alg None":              {forge(t, header("None"), goodPayload(), testSecret), ErrAlgorithm},
		"alg none without kid":  {text(`{"alg":"none"}`) + "." + parts[1] + ".", ErrAlgorithm},
		"alg missing":           {forge(t, map[string]any{"kid": "k1"}, goodPayload(), testSecret), ErrAlgorithm},
		"alg a number":          {forge(t, map[string]any{"alg": 1}, goodPayload(), testSecret), ErrAlgorithm},
		"alg HS512":             {forge(t, header("HS512"), goodPayload(), testSecret), ErrAlgorithm},
		"alg RS256":             {forge(t, header("RS256"), goodPayload(), testSecret), ErrAlgorithm},
		"alg ES256":             {forge(t, header("ES256"), goodPayload(), testSecret), ErrAlgorithm},
		"alg lower case":        {forge(t, header("hs256"), goodPayload(), testSecret), ErrAlgorithm},
		"unknown kid":           {forge(t, map[string]any{"alg": HS256, "kid": "k2"}, goodPayload(), testSecret), ErrUnknownKey},
		"kid a path":            {forge(t, map[string]any{"alg": HS256, "kid": "../../dev/null"}, goodPayload(), ""), ErrUnknownKey},
		"kid empty":             {forge(t, map[string]any{"alg": HS256, "kid": ""}, goodPayload(), testSecret), ErrUnknownKey},
		"kid a list":            {forge(t, map[string]any{"alg": HS256, "kid": []string{"k1"}}, goodPayload(), testSecret), ErrMalformedToken},
		"kid null":              {forge(t, map[string]any{"alg": HS256, "kid": nil}, goodPayload(), testSecret), ErrMalformedToken},
		"critical header":       {forge(t, map[string]any{"alg": HS256, "crit": []string{"b64"}, "b64": false}, goodPayload(), testSecret), ErrMalformedToken},
		"payload null":          {forge(t, header(HS256), "null", testSecret), ErrClaims},
		"payload a list":        {forge(t, header(HS256), "[1]", testSecret), ErrClaims},
		"payload not JSON":      {forge(t, header(HS256), "x", testSecret), ErrMalformedToken},
		"payload twice":         {forge(t, header(HS256), "{}{}", testSecret), ErrMalformedToken},
		"bad claims, wrong key": {forge(t, header(HS256), `{"kind":1}`, "another secret of thirty-two bytes!!"), ErrSignature},
	} {
		refused(t, v, name, c.token, c.want)
		if _, err := v.Verify(context.Background(), c.token); Code(err) != codes.Unauthenticated {
			t.Errorf("%s: status %s", name, Code(err))
		}
	}
}

// TestKeyConfusion plays the whole attack: a gateway that verifies RS256 has its
// public key in a file, and the attacker signs by HMAC with that file's bytes.
func TestKeyConfusion(t *testing.T) {
	t.Parallel()
	private, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	public := pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})

	// The public key is refused as a secret in each of its forms …
	for name, secret := range map[string][]byte{
		"PEM": public, "DER": der, "base64 of DER": []byte(base64.StdEncoding.EncodeToString(der)),
		"PEM without its frame": []byte(strings.Join(strings.Split(string(public), "\n")[1:8], "\n")),
	} {
		if _, err := NewKey("k1", secret); !errors.Is(err, ErrKeyFile) {
			t.Errorf("%s: a public key becomes a secret: %v", name, err)
		}
	}
	// … so neither a token signed with it, nor one that the private key signed,
	// meets a key that takes it.
	v, _ := setup(t)
	refused(t, v, "HS256 with the public key", forge(t, header(HS256), goodPayload(), string(public)), ErrSignature)
	text := strings.Join(strings.Split(forge(t, header("RS256"), goodPayload(), "x"), ".")[:2], ".")
	digest := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, private, crypto.SHA256, digest[:])
	if err != nil {
		t.Fatal(err)
	}
	refused(t, v, "RS256", text+"."+base64.RawURLEncoding.EncodeToString(signature), ErrAlgorithm)
}

func TestClaimsAreChecked(t *testing.T) {
	t.Parallel()
	v, _ := setup(t)
	for name, c := range map[string]struct {
		key   string
		value any // nil deletes the claim
		want  error
	}{
		"no exp":                {"exp", nil, ErrNoExpiry},
		"exp 0":                 {"exp", 0, ErrExpired},
		"exp negative":          {"exp", -1, ErrClaims},
		"exp a text":            {"exp", fmt.Sprint(now.Unix() + 60), ErrClaims},
		"exp huge":              {"exp", 1e300, ErrClaims},
		"expired":               {"exp", now.Unix() - 10, ErrExpired},
		"not yet":               {"nbf", now.Unix() + 11, ErrNotYetValid},
		"nbf a text":            {"nbf", "now", ErrClaims},
		"no iss":                {"iss", nil, ErrIssuer},
		"other iss":             {"iss", "Aether", ErrIssuer},
		"iss a list":            {"iss", []string{"aether"}, ErrClaims},
		"no aud":                {"aud", nil, ErrAudience},
		"other aud":             {"aud", []string{"x", "y"}, ErrAudience},
		"empty aud":             {"aud", []string{}, ErrAudience},
		"aud a number":          {"aud", 1, ErrClaims},
		"no kind":               {"kind", nil, ErrClaims},
		"unknown kind":          {"kind", "root", ErrClaims},
		"kind in capitals":      {"kind", "AGENT", ErrClaims},
		"kind a list":           {"kind", []string{"agent"}, ErrClaims},
		"no workspaces":         {"workspaces", nil, ErrClaims},
		"no workspace":          {"workspaces", []string{}, ErrClaims},
		"workspace not a list":  {"workspaces", "prod", ErrClaims},
		"all workspaces":        {"workspaces", "*", ErrClaims},
		"list of a star":        {"workspaces", []string{"*"}, ErrClaims},
		"star among others":     {"workspaces", []string{"prod", "*"}, ErrClaims},
		"reserved workspace":    {"workspaces", []string{"prod", "receiver0"}, ErrClaims},
		"workspace of two":      {"workspaces", []string{"a::b"}, ErrClaims},
		"empty workspace":       {"workspaces", []string{""}, ErrClaims},
		"workspaces of numbers": {"workspaces", []int{1}, ErrClaims},
		"workspace null":        {"workspaces", []any{nil}, ErrClaims},
		"no impl":               {"impl", nil, ErrClaims},
		"impl a glob":           {"impl", "*", ErrClaims},
		"impl with a space":     {"impl", "a b", ErrClaims},
		"no spec":               {"spec", nil, ErrClaims},
		"spec of two segments":  {"spec", "a::*", ErrClaims},
		"spec with an edge":     {"spec", "a:", ErrClaims},
		"spec too long":         {"spec", strings.Repeat("*", 129), ErrClaims},
		"roles a text":          {"roles", "admin", ErrClaims},
		"bad user":              {"user", "a b", ErrClaims},
	} {
		p := goodPayload()
		if c.value == nil {
			delete(p, c.key)
		} else {
			p[c.key] = c.value
		}
		refused(t, v, name, forge(t, header(HS256), p, testSecret), c.want)
		// A claim that is there and null is a mistake, not an absent one.
		p[c.key] = nil
		refused(t, v, name+", null", forge(t, header(HS256), p, testSecret), ErrClaims)
	}
	for _, kind := range []string{"task", "user"} {
		p := goodPayload()
		maps.Copy(p, map[string]any{"kind": kind, "workspaces": "*", "user": "u"})
		refused(t, v, kind+" of all workspaces", forge(t, header(HS256), p, testSecret), ErrClaims)
	}
	// An operator's rights are in all workspaces, whatever its token says of some.
	for _, c := range []struct {
		workspaces any
		want       error
	}{{[]string{"prod"}, ErrClaims}, {[]string{"prod", "test"}, ErrClaims}, {"*", nil}, {[]string{"*"}, nil}, {[]string{}, nil}} {
		p := goodPayload()
		p["kind"], p["workspaces"] = "operator", c.workspaces
		if _, err := v.Verify(context.Background(), forge(t, header(HS256), p, testSecret)); !errors.Is(err, c.want) {
			t.Errorf("an operator of %v: %v", c.workspaces, err)
		}
	}
	for _, kind := range []string{"user", "workflow_engine", "metrics_bridge", "orchestrator", "service", "bridge"} {
		p := goodPayload()
		p["kind"] = kind
		for _, claim := range []string{"impl", "spec", "user"} {
			delete(p, claim)
		}
		refused(t, v, kind+" of nobody", forge(t, header(HS256), p, testSecret), ErrClaims)
	}
}

func TestLeeway(t *testing.T) {
	t.Parallel()
	if _, err := NewVerifier(Options{}); err == nil {
		t.Error("a verifier without keys")
	}
	keys, _ := NewKeys(testKey(t, "k1", testSecret))
	if _, err := NewVerifier(Options{Keys: keys, Leeway: 31 * time.Second}); err == nil {
		t.Error("a leeway of more than 30 s")
	}
	exact, _ := setup(t, func(o *Options) { o.Leeway = -1 })
	wide, _ := setup(t, func(o *Options) { o.Leeway = 30 * time.Second })
	p := goodPayload()
	p["exp"] = now.Unix()
	refused(t, exact, "at the instant of expiry", forge(t, header(HS256), p, testSecret), ErrExpired)
	p["exp"] = now.Unix() - 29
	if _, err := wide.Verify(context.Background(), forge(t, header(HS256), p, testSecret)); err != nil {
		t.Errorf("29 s after expiry with 30 s of leeway: %v", err)
	}
	p["exp"] = now.Unix() - 30
	refused(t, wide, "30 s after expiry", forge(t, header(HS256), p, testSecret), ErrExpired)
}

// The gateway's clock is ahead of the issuer's, or behind: within the leeway it
// does not matter, beyond it the token is refused, and for the right reason.
func TestClocksAheadAndBehind(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[time.Duration]error{
		0: nil, 29 * time.Second: nil, 30 * time.Second: ErrExpired, time.Hour: ErrExpired,
		-89 * time.Second: nil, -90 * time.Second: nil, -91 * time.Second: ErrNotYetValid, -time.Hour: ErrNotYetValid,
	} {
		v, key := setup(t, func(o *Options) {
			o.Leeway, o.Clock = MaxLeeway, func() time.Time { return now.Add(time.Minute + ahead) }
		})
		c := agentClaims() // of one minute, as its issuer sees it
		c.IssuedAt, c.NotBefore, c.ExpiresAt = now, now, now.Add(time.Minute)
		if _, err := v.Verify(context.Background(), mint(t, key, c)); !errors.Is(err, want) {
			t.Errorf("the gateway is %s ahead: %v, want %v", ahead, err, want)
		}
	}
}

func TestIssuerAndAudienceOptions(t *testing.T) {
	t.Parallel()
	v, key := setup(t, func(o *Options) { o.Issuer, o.Audience = "https://id.example", "gw" })
	refused(t, v, "default token", mint(t, key, agentClaims()), ErrIssuer)
	c := agentClaims()
	c.Issuer, c.Audience = "https://id.example", []string{"other", "gw"}
	if _, err := v.Verify(context.Background(), mint(t, key, c)); err != nil {
		t.Error(err)
	}
}

func TestRotation(t *testing.T) {
	t.Parallel()
	old, fresh := testKey(t, "old", testSecret), testKey(t, "new", testSecret+testSecret)
	keys, err := NewKeys(fresh, old)
	if err != nil {
		t.Fatal(err)
	}
	v, _ := setup(t, func(o *Options) { o.Keys = keys })
	for _, k := range []Key{old, fresh} {
		if _, err := v.Verify(context.Background(), mint(t, k, agentClaims())); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
	for _, secret := range []string{testSecret, testSecret + testSecret} {
		if _, err := v.Verify(context.Background(), forge(t, map[string]any{"alg": HS256}, goodPayload(), secret)); err != nil {
			t.Errorf("without a kid: %v", err)
		}
	}
	// Each kid means its own key.
	refused(t, v, "kid of the other key", forge(t, map[string]any{"alg": HS256, "kid": "new"}, goodPayload(), testSecret), ErrSignature)
}

func TestVerifyHonoursContext(t *testing.T) {
	t.Parallel()
	v, key := setup(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := v.Verify(ctx, mint(t, key, agentClaims())); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestMintRefuses(t *testing.T) {
	t.Parallel()
	key := testKey(t, "k1", testSecret)
	noExpiry, badKind, huge := agentClaims(), agentClaims(), agentClaims()
	noExpiry.ExpiresAt = time.Time{}
	badKind.Kind = "root"
	huge.Roles = []string{strings.Repeat("r", MaxToken)}
	for name, c := range map[string]struct {
		key    Key
		claims Claims
		want   error
	}{
		"no key":    {Key{}, agentClaims(), ErrKeyAlgorithm},
		"no expiry": {key, noExpiry, ErrNoExpiry},
		"bad kind":  {key, badKind, ErrClaims},
		"too large": {key, huge, ErrTokenTooLarge},
	} {
		if token, err := Mint(c.key, c.claims); !errors.Is(err, c.want) || token != "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCode(t *testing.T) {
	t.Parallel()
	for want, err := range map[codes.Code]error{
		codes.OK: nil, codes.Unauthenticated: ErrExpired, codes.PermissionDenied: fmt.Errorf("x: %w", ErrNotCovered),
		codes.InvalidArgument: ErrConflictingCredentials, codes.Internal: errors.New("x"),
	} {
		if Code(err) != want {
			t.Errorf("%v: %s, want %s", err, Code(err), want)
		}
	}
}

func TestOperatorBindsToNothing(t *testing.T) {
	t.Parallel()
	v, key := setup(t)
	c, err := v.Verify(context.Background(), mint(t, key, Claims{Kind: KindOperator, Roles: []string{"admin"}, ExpiresAt: now.Add(time.Hour)}))
	if err != nil || !c.IsOperator() || !slices.Contains(c.Roles, "admin") {
		t.Fatalf("%v, %v", c, err)
	}
	for _, k := range acl.Kinds() {
		id := Identity{Kind: k, Workspace: "w", Implementation: "i", Specifier: "s", UserID: "u", Window: "w"}
		if _, err := c.Bind(id); !errors.Is(err, ErrNotCovered) {
			t.Errorf("an operator connects as %s: %v", k, err)
		}
	}
}
