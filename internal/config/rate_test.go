package config

import (
	"strings"
	"testing"
)

// Rates that nobody has set follow those of an identity, so that 0 there takes
// all limits away.
func TestRatesFollow(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		environ                    []string
		credential, workspace      int64
		credentialBytes, workBytes Size
	}{
		{nil, 1000, 20_000, 16 * mib, 320 * mib},
		{[]string{"AETHER_RATE_MESSAGES=10", "AETHER_RATE_BYTES=1MiB"}, 10, 200, mib, 20 * mib},
		{[]string{"AETHER_RATE_MESSAGES=0", "AETHER_RATE_BYTES=0"}, 0, 0, 0, 0},
		{
			[]string{"AETHER_RATE_MESSAGES=0", "AETHER_RATE_CREDENTIAL_MESSAGES=7", "AETHER_RATE_WORKSPACE_BYTES=0", "AETHER_RATE_CREDENTIAL_BYTES=auto"},
			7, 0, 16 * mib, 0,
		},
	} {
		cfg, err := Load(Options{Mode: Dev, Environ: c.environ})
		if err != nil {
			t.Fatal(err)
		}
		credential, credentialBytes := cfg.CredentialRate()
		workspace, workBytes := cfg.WorkspaceRate()
		if credential != c.credential || workspace != c.workspace || credentialBytes != c.credentialBytes || workBytes != c.workBytes {
			t.Errorf("%q: %d, %d, %s, %s", c.environ, credential, workspace, credentialBytes, workBytes)
		}
	}
	cfg, err := Load(Options{Mode: Dev, Environ: []string{"AETHER_RATE_WORKSPACE_MESSAGES=-1", "AETHER_RATE_BYTES=auto"}})
	if err == nil || !strings.Contains(err.Error(), "rate.workspace.messages") || !strings.Contains(err.Error(), "rate.bytes") {
		t.Errorf("got %v", err)
	}
	for _, e := range cfg.Entries() {
		if e.Key == "rate.credential.messages" && e.Value != "auto" {
			t.Errorf("shown as %q", e.Value)
		}
	}
}
