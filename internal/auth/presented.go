package auth

import (
	"fmt"
	"strings"
)

// Presented is the credential that a connection shows, not yet verified. It
// prints without the token.
type Presented struct {
	token sealed
}

// Token is the JWT, to be given to Verify. It must not be logged.
func (p Presented) Token() string { return p.token.value() }

// String implements fmt.Stringer without the token.
func (p Presented) String() string {
	if p.token.value() == "" {
		return "no credential"
	}
	return "a token"
}

// GoString keeps the token out of %#v as well.
func (p Presented) GoString() string { return p.String() }

const bearerScheme = "bearer"

// tokenPlaces are the keys of an init frame's credentials that hold a JWT.
var tokenPlaces = []string{"authorization", "bearer_token"}

// otherPlaces are the keys that hold credentials of other types.
var otherPlaces = []struct{ key, what string }{
	{"token", "task tokens"},
	{"x-api-key", "API keys"},
	{"api_key", "API keys"},
}

// FromMetadataAndInit finds the one credential of a connection among the values
// of the `authorization` metadata and the credentials of the init frame: a JWT
// under `authorization` (after "Bearer ", which may be left out) or
// `bearer_token`, a task token under `token`, an API key under `x-api-key` or
// `api_key`. Empty values and unknown keys are ignored; the same credential in
// several places is one.
//
// Several that disagree are ErrConflictingCredentials, none at all
// ErrNoCredential; task tokens, API keys and other authorization schemes are
// ErrUnsupportedCredential.
func FromMetadataAndInit(md []string, init map[string]string) (Presented, error) {
	values := append([]string(nil), md...)
	for _, place := range tokenPlaces {
		values = append(values, init[place])
	}
	var found, other string
	for _, v := range values {
		token, scheme := splitScheme(v)
		switch {
		case scheme != "" && scheme != bearerScheme:
			// Not repeated: who forgets the scheme has a secret in its place.
			other = "authorization schemes other than Bearer"
		case token == "":
		case found != "" && found != token:
			return Presented{}, ErrConflictingCredentials
		default:
			found = token
		}
	}
	first := "" // the value of another credential
	for _, place := range otherPlaces {
		v := strings.TrimSpace(init[place.key])
		if v == "" {
			continue
		}
		if first != "" && first != v {
			return Presented{}, ErrConflictingCredentials
		}
		first, other = v, place.what
	}
	switch {
	case found != "" && other != "":
		return Presented{}, ErrConflictingCredentials
	case other != "":
		return Presented{}, fmt.Errorf("%w: %s", ErrUnsupportedCredential, other)
	case found == "":
		return Presented{}, ErrNoCredential
	}
	return Presented{token: seal(found)}, nil
}

// splitScheme takes an authorization value apart. The scheme is lower case, and
// "" if there is none.
func splitScheme(v string) (token, scheme string) {
	v = strings.TrimSpace(v)
	if strings.EqualFold(v, bearerScheme) {
		return "", ""
	}
	before, after, ok := strings.Cut(v, " ")
	if !ok {
		return v, ""
	}
	return strings.TrimSpace(after), strings.ToLower(before)
}
