package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A public key must never become a secret: neither command takes it for one,
// whatever the file is called.
func TestPublicKeyIsNoSecret(t *testing.T) {
	t.Parallel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	check(t, err)
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"pem.hs256":      pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}),
		"der.hs256":      der,
		"jwk.hs256":      []byte(`{"kty":"EC","crv":"P-256","x":"MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4","y":"4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}`),
		"short.hs256":    []byte("too short a secret"),
		"secret.txt":     []byte(secret),
		"directory":      nil,
		"nowhere.hs256x": nil,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(dir, name)
			switch {
			case content != nil:
				check(t, os.WriteFile(path, content, 0o600))
			case name == "directory":
				check(t, os.Mkdir(path, 0o700))
			}
			_, stderr, code, err := command(nil, "token", "create", "--kind", "operator", "--key-file", path)
			check(t, err)
			if code != 1 || !strings.Contains(stderr, name) {
				t.Errorf("token create: exit %d\n%s", code, stderr)
			}
			stdout, stderr, code, err := command([]string{"AETHER_JWT_KEY_FILE=" + path, "HOME=" + dir},
				"dev", "--data-dir", filepath.Join(dir, name+".data"), "--grpc-addr", "127.0.0.1:0", "--http-addr", "127.0.0.1:0")
			check(t, err)
			if code != 1 || !strings.Contains(stderr, name) || stdout != "" {
				t.Errorf("dev: exit %d\n%s%s", code, stdout, stderr)
			}
			if strings.Contains(stderr, secret) {
				t.Error("a secret is repeated")
			}
		})
	}
}

// The data directory of dev has a key of its own, which token create finds.
func TestDataDirectoryToken(t *testing.T) {
	t.Parallel()
	g := startDev(t)
	dir := g.args[2]
	for _, flags := range [][]string{{"--data-dir", dir}, {"--data-dir", dir, "--ttl", "90m"}} {
		args := append([]string{"token", "create", "--kind", "agent", "--workspace", "w", "--impl", "i", "--spec", "s"}, flags...)
		token, stderr, code, err := command(nil, args...)
		check(t, err)
		if code != 0 {
			t.Fatalf("token create: exit %d\n%s", code, stderr)
		}
		p := connect(t, g, agent("w", "i", "s"), credentials(map[string]string{"bearer_token": strings.TrimSuffix(token, "\n")}))
		p.stored(p.name(), "hello")
		if m := p.read(); string(m.GetPayload()) != "hello" {
			t.Errorf("got %v", m)
		}
		p.leaves()
	}
	keys, err := filepath.Glob(filepath.Join(dir, "*"))
	check(t, err)
	for _, path := range keys {
		info, err := os.Stat(path)
		check(t, err)
		if ext := filepath.Ext(path); (ext == ".hs256" || ext == ".jwt") && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v: others may read it", path, info.Mode())
		}
	}
}
