package auth

import (
	"errors"
	"fmt"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
)

// Mint signs a token with these claims, by the key's algorithm. A public key
// cannot: ErrCannotSign. ExpiresAt is required; Issuer and
// Audience default to DefaultIssuer and DefaultAudience, ID to a new one,
// IssuedAt to now, and Subject to a name for the kind and identity. Claims that
// Verify would refuse are refused here.
func Mint(key Key, c Claims) (string, error) {
	method := methods[key.alg]
	switch {
	case method == nil:
		return "", ErrKeyAlgorithm
	case !key.Signs():
		return "", ErrCannotSign
	}
	if c.ExpiresAt.IsZero() {
		return "", ErrNoExpiry
	}
	if err := c.check(); err != nil {
		return "", err
	}
	if c.Issuer == "" {
		c.Issuer = DefaultIssuer
	}
	if len(c.Audience) == 0 {
		c.Audience = []string{DefaultAudience}
	}
	if c.ID == "" {
		id, err := uuid.NewV7()
		if err != nil {
			return "", fmt.Errorf("making a token id: %w", err)
		}
		c.ID = id.String()
	}
	if c.IssuedAt.IsZero() {
		c.IssuedAt = time.Now()
	}
	if c.Subject == "" {
		c.Subject = c.defaultSubject()
	}
	payload, err := c.encode()
	if err != nil {
		return "", fmt.Errorf("encoding claims: %w", err)
	}
	t := jwt.NewWithClaims(method, &rawClaims{raw: payload})
	t.Header["kid"] = key.id
	token, err := t.SignedString(key.sign.value())
	if err != nil {
		return "", errors.New("signing the token failed")
	}
	if len(token) > MaxToken {
		return "", ErrTokenTooLarge
	}
	return token, nil
}

func (c *Claims) defaultSubject() string {
	s := c.Kind
	for _, part := range []string{c.User, c.Impl, c.Spec} {
		if part != "" {
			s += "/" + part
		}
	}
	return s
}
