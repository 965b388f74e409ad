package auth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// MaxToken is the most bytes that a token may have.
	MaxToken = 8 << 10

	// DefaultLeeway and MaxLeeway bound how far the clocks of issuer and gateway
	// may differ.
	DefaultLeeway = 10 * time.Second
	MaxLeeway     = 30 * time.Second
)

// Options configure a Verifier.
type Options struct {
	// Keys are those that tokens may be signed with. Required.
	Keys KeySource
	// APIKeys knows the API keys; nil refuses them all.
	APIKeys APIKeys
	// Certificates says which client certificates stand in for a credential;
	// nil means none.
	Certificates *Certificates
	// Anonymous lets agents, tasks and users on loopback connect without a
	// credential.
	Anonymous bool
	// Issuer and Audience are what the claims iss and aud must be, or hold.
	// "" means DefaultIssuer and DefaultAudience. Keys may have an issuer of
	// their own.
	Issuer, Audience string
	// Leeway is granted to exp and nbf when connecting; 0 means DefaultLeeway, a
	// negative value none, and more than MaxLeeway is an error.
	Leeway time.Duration
	// Clock tells the time; nil means time.Now.
	Clock func() time.Time
}

// Verifier checks credentials. It is immutable and safe for concurrent use.
type Verifier struct {
	keys             KeySource
	apiKeys          APIKeys
	taskTokens       TaskTokens // nil refuses them all
	certificates     *Certificates
	anonymous        bool
	issuer, audience string
	leeway           time.Duration
	clock            func() time.Time
	parser           *jwt.Parser
}

// NewVerifier checks the options and makes a Verifier of them.
func NewVerifier(o Options) (*Verifier, error) {
	if o.Keys == nil {
		return nil, errors.New("auth: a verifier needs keys")
	}
	if o.Leeway > MaxLeeway {
		return nil, fmt.Errorf("auth: a leeway of %s is more than the allowed %s", o.Leeway, MaxLeeway)
	}
	v := &Verifier{
		keys: o.Keys, apiKeys: o.APIKeys, certificates: o.Certificates, anonymous: o.Anonymous,
		issuer: o.Issuer, audience: o.Audience, leeway: max(o.Leeway, 0), clock: o.Clock,
		// Claims are validated here, where each failure has an error of its own.
		parser: jwt.NewParser(jwt.WithStrictDecoding(), jwt.WithoutClaimsValidation()),
	}
	if v.issuer == "" {
		v.issuer = DefaultIssuer
	}
	if v.audience == "" {
		v.audience = DefaultAudience
	}
	if o.Leeway == 0 {
		v.leeway = DefaultLeeway
	}
	if v.clock == nil {
		v.clock = time.Now
	}
	return v, nil
}

// Verify checks a credential that was shown: an API key if it begins with
// APIKeyPrefix, a task token if with TaskTokenPrefix, else a token. Of a token it checks the size and form, algorithm
// and key, signature, times, issuer and audience, and that its claims make an
// identity, in this order. The claims are not looked at before the signature
// holds.
//
// It may wait for a key that is looked for elsewhere, some seconds at most.
func (v *Verifier) Verify(ctx context.Context, shown string) (*Credential, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if isAPIKey(shown) {
		return v.verifyAPIKey(ctx, shown)
	}
	if isTaskToken(shown) {
		return v.verifyTaskToken(ctx, shown)
	}
	payload, key, err := v.open(ctx, shown)
	if err != nil {
		return nil, err
	}
	claims, err := parseClaims(payload)
	if err != nil {
		return nil, err
	}
	if err := v.checkClaims(&claims, key); err != nil {
		return nil, err
	}
	c := claims.credential(TypeToken)
	c.KeyID, c.Fingerprint = key.id, fingerprint(shown)
	c.good = func() bool { return v.keys.Holds(key) }
	return c, nil
}

// open verifies the signature and gives the payload and the key that fits.
func (v *Verifier) open(ctx context.Context, token string) (json.RawMessage, Key, error) {
	if err := checkForm(token); err != nil {
		return nil, Key{}, err
	}
	var payload rawClaims
	t, parts, err := v.parser.ParseUnverified(token, &payload)
	if err != nil {
		// The library's texts may repeat parts of the token, so none is passed on.
		if errors.Is(err, jwt.ErrTokenUnverifiable) { // an algorithm nobody knows
			return nil, Key{}, ErrAlgorithm
		}
		return nil, Key{}, ErrMalformedToken
	}
	signature, err := v.parser.DecodeSegment(parts[2])
	if err != nil {
		return nil, Key{}, ErrMalformedToken
	}
	keys, err := v.candidates(ctx, t)
	if err != nil {
		return nil, Key{}, err
	}
	signed := token[:len(parts[0])+1+len(parts[1])]
	for _, k := range keys {
		if t.Method.Verify(signed, signature, k.check.value()) == nil {
			return payload.raw, k, nil
		}
	}
	return nil, Key{}, ErrSignature
}

// candidates gives the keys that may have signed a token with this header. Each
// is pinned to its algorithm: a key never meets a token of another one.
func (v *Verifier) candidates(ctx context.Context, t *jwt.Token) ([]Key, error) {
	if _, critical := t.Header["crit"]; critical {
		// It names header fields that must be understood; none are.
		return nil, ErrMalformedToken
	}
	if _, ours := methods[t.Method.Alg()]; !ours {
		return nil, ErrAlgorithm
	}
	value, named := t.Header["kid"]
	kid, text := value.(string)
	if named && !text {
		return nil, ErrMalformedToken
	}
	if len(kid) > maxKeyID {
		return nil, ErrUnknownKey
	}
	from, err := v.keys.Lookup(ctx, kid, named)
	if err != nil {
		return nil, err
	}
	var fit []Key
	for _, k := range from {
		if k.alg == t.Method.Alg() {
			fit = append(fit, k)
		}
	}
	if len(fit) == 0 {
		return nil, ErrAlgorithm
	}
	return fit, nil
}

func (v *Verifier) checkClaims(c *Claims, key Key) error {
	now, issuer := v.clock(), v.issuer
	if key.issuer != "" {
		issuer = key.issuer
	}
	switch {
	case c.ExpiresAt.IsZero():
		return ErrNoExpiry
	case !now.Before(c.ExpiresAt.Add(v.leeway)):
		return ErrExpired
	case !c.NotBefore.IsZero() && now.Add(v.leeway).Before(c.NotBefore):
		return ErrNotYetValid
	case c.Issuer != issuer:
		return ErrIssuer
	case !slices.Contains(c.Audience, v.audience):
		return ErrAudience
	}
	return c.check()
}

// checkForm bounds the token before anything parses it.
func checkForm(token string) error {
	if len(token) > MaxToken {
		return ErrTokenTooLarge
	}
	for i := range len(token) {
		switch c := token[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default: // base64 decoders skip line ends, which would make two texts one token
			return ErrMalformedToken
		}
	}
	return nil
}

// rawClaims keeps the payload as it is, so that nothing reads it before the
// signature is verified. The embedded claims make it a jwt.Claims and stay
// empty.
type rawClaims struct {
	jwt.RegisteredClaims
	raw json.RawMessage
}

// UnmarshalJSON implements json.Unmarshaler.
func (c *rawClaims) UnmarshalJSON(b []byte) error {
	c.raw = slices.Clone(b)
	return nil
}

// MarshalJSON implements json.Marshaler.
func (c *rawClaims) MarshalJSON() ([]byte, error) { return c.raw, nil }
