package admin

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/aether-gateway/gateway/internal/auth"
)

// lenient is a verifier that takes whatever it is shown.
type lenient struct{ expires time.Time }

func (l lenient) Shown(context.Context, auth.Shown) (*auth.Credential, error) {
	return &auth.Credential{Claims: auth.Claims{Kind: auth.KindOperator, Subject: "ops", ExpiresAt: l.expires}}, nil
}

// An operator's token gets no leeway; a call during which it expires says so.
func TestExpiredOperator(t *testing.T) {
	t.Parallel()
	gate := &Gate{Verifier: lenient{time.Now().Add(-time.Second)}}
	if _, _, err := gate.Open(t.Context(), auth.Shown{}); status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an expired token: %v", err)
	}
	gate.Verifier = lenient{time.Now().Add(time.Minute)}
	good, cancel, err := gate.Open(t.Context(), auth.Shown{})
	if err != nil {
		t.Fatal(err)
	}
	defer cancel()
	away := status.Error(codes.Unavailable, "the store is away")
	if got := ended(good, away); got != away { //nolint:errorlint // the very same
		t.Errorf("a good token's call: %v", got)
	}
	over, stop := context.WithDeadlineCause(t.Context(), time.Now().Add(-time.Second), auth.ErrExpired)
	defer stop()
	if got := ended(over, away); status.Code(got) != codes.Unauthenticated {
		t.Errorf("the call of a token that has expired: %v", got)
	}
	if got := ended(over, nil); got != nil {
		t.Errorf("a call that was done: %v", got)
	}
}

// What may be a key by mistake is in no record.
func TestShownName(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"billing": "billing", "hxttsdcgqmlwmac2": "hxttsdcgqmlwmac2", auth.APIKeyPrefix + "hxtt": "", strings.Repeat("a", 52): "",
	} {
		if got := shownName(typed); got != want {
			t.Errorf("%q is recorded as %q", typed, got)
		}
	}
}

func TestCheckKind(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", "agent", "unique_task", "bridge"} {
		if err := checkKind(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	if err := checkKind("nope"); status.Code(err) != codes.InvalidArgument {
		t.Errorf("nope: %v", err)
	}
}
