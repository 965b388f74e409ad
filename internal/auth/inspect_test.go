package auth

import (
	"context"
	"errors"
	"strings"
	"testing"
)

func TestInspect(t *testing.T) {
	t.Parallel()
	v, key := setup(t)
	good := mint(t, key, agentClaims())
	in, err := Inspect(context.Background(), good, v)
	if err != nil {
		t.Fatal(err)
	}
	if !in.Checked || in.Err != nil || in.ClaimsErr != nil || in.Claims.Impl != "coder" || !strings.Contains(string(in.Header), `"kid":"k1"`) ||
		!strings.Contains(string(in.Payload), `"workspaces":["prod"]`) {
		t.Errorf("%+v", in)
	}
	if in, err = Inspect(context.Background(), good, nil); err != nil || in.Checked || in.Claims.Impl != "coder" {
		t.Errorf("without keys: %+v, %v", in, err)
	}

	expired := goodPayload()
	expired["exp"] = now.Unix() - 60
	in, err = Inspect(context.Background(), forge(t, header(HS256), expired, testSecret), v)
	if err != nil || !errors.Is(in.Err, ErrExpired) || in.ClaimsErr != nil || in.Claims.Kind != KindAgent {
		t.Errorf("expired: %+v, %v", in, err)
	}
	in, err = Inspect(context.Background(), forge(t, header("none"), `{"kind":7}`, ""), v)
	if err != nil || !errors.Is(in.Err, ErrAlgorithm) || !errors.Is(in.ClaimsErr, ErrClaims) {
		t.Errorf("alg none: %+v, %v", in, err)
	}
	for name, c := range map[string]struct {
		token string
		want  error
	}{
		"empty":    {"", ErrMalformedToken},
		"words":    {"not a token", ErrMalformedToken},
		"two":      {"a.b", ErrMalformedToken},
		"no JSON":  {"YQ.YQ.YQ", ErrMalformedToken},
		"null":     {"bnVsbA.bnVsbA.", ErrMalformedToken},
		"too long": {strings.Repeat("a", MaxToken+1), ErrTokenTooLarge},
	} {
		if _, err := Inspect(context.Background(), c.token, v); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
