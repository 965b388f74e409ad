package auth

import (
	"fmt"
	"strings"
)

// Presented is the credential that a connection shows, not yet verified. It
// prints without the token.
type Presented struct {
	token sealed[string]
}

// Token is the JWT, API key or task token, to be given to Verify. It must not be logged.
func (p Presented) Token() string { return p.token.value() }

// String implements fmt.Stringer without the token.
func (p Presented) String() string {
	if p.token.value() == "" {
		return "no credential"
	}
	if isAPIKey(p.token.value()) {
		return "an API key"
	}
	if isTaskToken(p.token.value()) {
		return "a task token"
	}
	return "a token"
}

// GoString keeps the token out of %#v as well.
func (p Presented) GoString() string { return p.String() }

const bearerScheme = "bearer"

// Where the credentials of an init frame are, by their keys.
var (
	tokenPlaces  = []string{"authorization", "bearer_token"}
	apiKeyPlaces = []string{"x-api-key", "api_key"}
)

const taskTokenPlace = "token"

// FromMetadataAndInit finds the one credential of a connection among the values
// of the `authorization` metadata and the credentials of the init frame: a JWT
// or an API key under `authorization` (after "Bearer ", which may be left out) or
// `bearer_token`, a task token under `token`, an API key under `x-api-key` or
// `api_key`. Empty values and unknown keys are ignored; the same credential in
// several places is one.
//
// Several that disagree are ErrConflictingCredentials, none at all
// ErrNoCredential, what is no API key or task token in the place of one ErrAPIKey or
// ErrTaskToken; other authorization schemes are ErrUnsupportedCredential.
func FromMetadataAndInit(md []string, init map[string]string) (Presented, error) {
	values := append([]string(nil), md...)
	for _, place := range tokenPlaces {
		values = append(values, init[place])
	}
	found, refused := "", error(nil)
	take := func(credential string, problem error) bool {
		if found != "" && found != credential {
			return false
		}
		if found = credential; refused == nil {
			refused = problem
		}
		return true
	}
	for _, v := range values {
		token, scheme := splitScheme(v)
		switch {
		case scheme != "" && scheme != bearerScheme:
			// Not repeated: who forgets the scheme has a secret in its place.
			if !take(v, fmt.Errorf("%w: authorization schemes other than Bearer", ErrUnsupportedCredential)) {
				return Presented{}, ErrConflictingCredentials
			}
		case token != "" && !take(token, nil):
			return Presented{}, ErrConflictingCredentials
		}
	}
	for _, place := range apiKeyPlaces {
		key, problem := strings.TrimSpace(init[place]), error(nil)
		if key != "" && !isAPIKey(key) {
			problem = ErrAPIKey
		}
		if key != "" && !take(key, problem) {
			return Presented{}, ErrConflictingCredentials
		}
	}
	token, problem := strings.TrimSpace(init[taskTokenPlace]), error(nil)
	if token != "" && !isTaskToken(token) {
		problem = ErrTaskToken
	}
	if token != "" && !take(token, problem) {
		return Presented{}, ErrConflictingCredentials
	}
	switch {
	case refused != nil:
		return Presented{}, refused
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
