package auth

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strings"
)

// Inspection is what a token says, whether or not it is to be believed.
type Inspection struct {
	Header  json.RawMessage // as in the token: a JSON object
	Payload json.RawMessage // likewise
	Claims  Claims          // the payload as this package understands it
	// ClaimsErr says why Claims is empty or makes no identity; nil if it does.
	ClaimsErr error
	// Checked tells whether there was a Verifier; Err is its verdict, nil if the
	// token is good.
	Checked bool
	Err     error
}

// Inspect decodes a token without trusting it, and verifies it as well if v is
// not nil. It fails with ErrTokenTooLarge or ErrMalformedToken if there is
// nothing to show.
func Inspect(ctx context.Context, token string, v *Verifier) (*Inspection, error) {
	if err := checkForm(token); err != nil {
		return nil, err
	}
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return nil, ErrMalformedToken
	}
	var in Inspection
	for i, to := range []*json.RawMessage{&in.Header, &in.Payload} {
		raw, err := base64.RawURLEncoding.DecodeString(parts[i])
		var object map[string]json.RawMessage
		if err != nil || json.Unmarshal(raw, &object) != nil || object == nil {
			return nil, ErrMalformedToken
		}
		*to = raw
	}
	if in.Claims, in.ClaimsErr = parseClaims(in.Payload); in.ClaimsErr == nil {
		in.ClaimsErr = in.Claims.check()
	}
	if v != nil {
		in.Checked = true
		_, in.Err = v.Verify(ctx, token)
	}
	return &in, nil
}
