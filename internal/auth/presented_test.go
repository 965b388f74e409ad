package auth

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
)

func TestFromMetadataAndInit(t *testing.T) {
	t.Parallel()
	type m = map[string]string
	for name, c := range map[string]struct {
		md   []string
		init m
		want string
		err  error
	}{
		"metadata":                       {md: []string{"Bearer tok"}, want: "tok"},
		"metadata without prefix":        {md: []string{"tok"}, want: "tok"},
		"metadata, prefix in lower case": {md: []string{"bearer  tok "}, want: "tok"},
		"init authorization":             {init: m{"authorization": "Bearer tok"}, want: "tok"},
		"init authorization bare":        {init: m{"authorization": "tok"}, want: "tok"},
		"bearer_token":                   {init: m{"bearer_token": "tok"}, want: "tok"},
		"the same everywhere":            {md: []string{"Bearer tok", "tok"}, init: m{"authorization": "tok", "bearer_token": "Bearer tok"}, want: "tok"},
		"empty ones":                     {md: []string{"", "Bearer "}, init: m{"authorization": "Bearer", "bearer_token": " ", "token": "", "api_key": " "}, err: ErrNoCredential},
		"nothing":                        {err: ErrNoCredential},
		"unknown key":                    {init: m{"password": "x"}, err: ErrNoCredential},
		"metadata twice":                 {md: []string{"Bearer tok1", "Bearer tok2"}, err: ErrConflictingCredentials},
		"metadata and init":              {md: []string{"Bearer tok1"}, init: m{"authorization": "tok2"}, err: ErrConflictingCredentials},
		"within init":                    {init: m{"authorization": "tok1", "bearer_token": "tok2"}, err: ErrConflictingCredentials},
		"token and API key":              {init: m{"authorization": "tok1", "x-api-key": "key"}, err: ErrConflictingCredentials},
		"token and task token":           {md: []string{"tok1"}, init: m{"token": "tok2"}, err: ErrConflictingCredentials},
		"two API keys":                   {init: m{"x-api-key": "k1", "api_key": "k2"}, err: ErrConflictingCredentials},
		"token and Basic":                {md: []string{"Bearer tok", "Basic dTpw"}, err: ErrConflictingCredentials},
		"API key":                        {init: m{"x-api-key": "ak_1"}, want: "ak_1"},
		"API key as a token":             {md: []string{"Bearer ak_1"}, want: "ak_1"},
		"the same API key everywhere":    {md: []string{"Bearer ak_1"}, init: m{"x-api-key": "ak_1", "api_key": " ak_1 "}, want: "ak_1"},
		"no API key in its place":        {init: m{"x-api-key": "hidden-key"}, err: ErrAPIKey},
		"a token in an API key's place":  {init: m{"authorization": "tok", "api_key": "tok"}, err: ErrAPIKey},
		"task token":                     {init: m{"token": "tt_abc"}, want: "tt_abc"},
		"no task token":                  {init: m{"token": "hidden-key"}, err: ErrTaskToken},
		"Basic":                          {md: []string{"Basic hidden-key"}, err: ErrUnsupportedCredential},
		"a secret with a space":          {md: []string{"hidden-key x"}, err: ErrUnsupportedCredential},
	} {
		got, err := FromMetadataAndInit(c.md, c.init)
		if !errors.Is(err, c.err) || got.Token() != c.want {
			t.Errorf("%s: %q, %v", name, got.Token(), err)
		}
		if err == nil {
			continue
		}
		want := codes.Unauthenticated
		if errors.Is(c.err, ErrConflictingCredentials) {
			want = codes.InvalidArgument
		}
		if Code(err) != want {
			t.Errorf("%s: status %s", name, Code(err))
		}
		for _, secret := range []string{"tok1", "tok2", "hidden-key", "dTpw"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error shows a credential: %v", name, err)
			}
		}
	}
}

func TestPrintingShowsNoSecret(t *testing.T) {
	t.Parallel()
	p, _ := FromMetadataAndInit([]string{"Bearer hidden-token"}, nil)
	key := testKey(t, "k1", "hidden-token hidden-token hidden-token")
	keys, _ := NewKeys(key)
	v, _ := setup(t, func(o *Options) { o.Keys = keys })
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		for _, v := range []any{p, key, []Key{key}, struct{ P Presented }{p}, struct{ p Presented }{p}, struct{ k Key }{key}, struct{ k Keys }{*keys}, keys, v} {
			if text := fmt.Sprintf(format, v); strings.Contains(text, "hidden") {
				t.Errorf("%s of %T: %s", format, v, text)
			}
		}
	}
}
