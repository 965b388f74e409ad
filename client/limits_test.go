package client

import (
	"testing"
	"time"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// A send that was refused by rate may be sent again after the time that the
// gateway has told; one that found no room may not.
func TestLimitsAreToldApart(t *testing.T) {
	t.Parallel()
	for code, again := range map[Code]bool{CodeRateLimited: true, CodeWorkspaceLimited: true, CodeQuotaExceeded: false} {
		r := &aetherv1.ErrorResponse{Code: string(code), Retryable: again, Details: map[string]string{"scope": "identity"}}
		if again {
			r.RetryAfterMs = 250
		}
		e := fromResponse(r)
		if SafeToRetry(e) != again || !NotStored(e) || CodeOf(e) != code || e.Details["scope"] != "identity" {
			t.Errorf("%s: %+v", code, e)
		}
		if again && e.RetryAfter != 250*time.Millisecond {
			t.Errorf("%s: told to wait %v", code, e.RetryAfter)
		}
	}
}
