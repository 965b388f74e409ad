package auth

import "time"

// FormatClaims is the text of claims that are kept with something else than a
// token, such as an API key: a JSON object. What belongs to a token alone, its
// id, issuer, audience and times, is left out. Claims that make no identity are
// refused with ErrClaims.
func FormatClaims(c Claims) (string, error) {
	if err := c.check(); err != nil {
		return "", err
	}
	c.ID, c.Issuer, c.Audience = "", "", nil
	c.IssuedAt, c.NotBefore, c.ExpiresAt = time.Time{}, time.Time{}, time.Time{}
	if c.Subject == "" {
		c.Subject = c.defaultSubject()
	}
	text, err := c.encode()
	return string(text), err
}

// ParseClaims reads what FormatClaims has made. Errors wrap ErrClaims.
func ParseClaims(text string) (Claims, error) {
	c, err := parseClaims([]byte(text))
	if err == nil {
		err = c.check()
	}
	if err != nil {
		return Claims{}, err
	}
	return c, nil
}
