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
	Keys *Keys
	// Issuer and Audience are what the claims iss and aud must be, or hold.
	// "" means DefaultIssuer and DefaultAudience.
	Issuer, Audience string
	// Leeway is granted to exp and nbf when connecting; 0 means DefaultLeeway, a
	// negative value none, and more than MaxLeeway is an error.
	Leeway time.Duration
	// Clock tells the time; nil means time.Now.
	Clock func() time.Time
}

// Verifier checks tokens. It is immutable and safe for concurrent use.
type Verifier struct {
	keys             *Keys
	issuer, audience string
	leeway           time.Duration
	clock            func() time.Time
	parser           *jwt.Parser
}

// NewVerifier checks the options and makes a Verifier of them.
func NewVerifier(o Options) (*Verifier, error) {
	if o.Keys == nil || o.Keys.Len() == 0 {
		return nil, errors.New("auth: a verifier needs at least one key")
	}
	if o.Leeway > MaxLeeway {
		return nil, fmt.Errorf("auth: a leeway of %s is more than the allowed %s", o.Leeway, MaxLeeway)
	}
	v := &Verifier{
		keys: o.Keys, issuer: o.Issuer, audience: o.Audience, leeway: max(o.Leeway, 0), clock: o.Clock,
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

// Verify checks a token: its size and form, algorithm and key, signature,
// times, issuer and audience, and that its claims make an identity, in this
// order. The claims are not looked at before the signature holds.
func (v *Verifier) Verify(ctx context.Context, token string) (*Credential, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	payload, err := v.open(token)
	if err != nil {
		return nil, err
	}
	claims, err := parseClaims(payload)
	if err != nil {
		return nil, err
	}
	if err := v.checkClaims(&claims); err != nil {
		return nil, err
	}
	return &Credential{Claims: claims, scope: claims.scope()}, nil
}

// open verifies the signature and gives the payload.
func (v *Verifier) open(token string) (json.RawMessage, error) {
	if err := checkForm(token); err != nil {
		return nil, err
	}
	var payload rawClaims
	_, err := v.parser.ParseWithClaims(token, &payload, v.candidates)
	if err == nil {
		return payload.raw, nil
	}
	// The library's texts may repeat parts of the token, so none is passed on.
	if r, ok := errors.AsType[*refusal](err); ok {
		return nil, r
	}
	switch {
	case errors.Is(err, jwt.ErrTokenSignatureInvalid):
		return nil, ErrSignature
	case errors.Is(err, jwt.ErrTokenUnverifiable): // an algorithm nobody knows
		return nil, ErrAlgorithm
	}
	return nil, ErrMalformedToken
}

// candidates gives the keys that may have signed a token with this header. Each
// is pinned to its algorithm: a key never meets a token of another one.
func (v *Verifier) candidates(t *jwt.Token) (any, error) {
	if _, critical := t.Header["crit"]; critical {
		// It names header fields that must be understood; none are.
		return nil, ErrMalformedToken
	}
	var from []Key
	switch kid := t.Header["kid"].(type) {
	case nil:
		if _, present := t.Header["kid"]; present {
			return nil, ErrMalformedToken
		}
		from = v.keys.list
	case string:
		k, ok := v.keys.byID[kid]
		if !ok {
			return nil, ErrUnknownKey
		}
		from = []Key{k}
	default:
		return nil, ErrMalformedToken
	}
	var fit jwt.VerificationKeySet
	for _, k := range from {
		if k.alg == t.Method.Alg() {
			fit.Keys = append(fit.Keys, []byte(k.secret.value()))
		}
	}
	if len(fit.Keys) == 0 {
		return nil, ErrAlgorithm
	}
	return fit, nil
}

func (v *Verifier) checkClaims(c *Claims) error {
	now := v.clock()
	switch {
	case c.ExpiresAt.IsZero():
		return ErrNoExpiry
	case !now.Before(c.ExpiresAt.Add(v.leeway)):
		return ErrExpired
	case !c.NotBefore.IsZero() && now.Add(v.leeway).Before(c.NotBefore):
		return ErrNotYetValid
	case c.Issuer != v.issuer:
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
