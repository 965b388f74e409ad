package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestKeyFiles(t *testing.T) {
	t.Parallel()
	_, private, _ := ed25519.GenerateKey(rand.Reader)
	pkcs8, _ := x509.MarshalPKCS8PrivateKey(private)
	spki, _ := x509.MarshalPKIXPublicKey(private.Public())
	pemFile := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	secret32 := strings.Repeat("s", 32)

	for name, c := range map[string]struct {
		file, content, alg string
		want               error
	}{
		"secret":                       {file: "a.hs256", content: secret32},
		"secret with a newline":        {file: "a.hs256", content: secret32 + "\n"},
		"binary secret":                {file: "a.hs256", content: strings.Repeat("\x00\xff", 16)},
		"binary secret like one TLV":   {file: "a.hs256", content: "\x04\x1e" + strings.Repeat("x", 30)},
		"base64 secret":                {file: "a.hs256", content: base64.StdEncoding.EncodeToString([]byte(secret32))},
		"secret by option":             {file: "a.key", content: secret32, alg: HS256},
		"short":                        {file: "a.hs256", content: secret32[1:], want: ErrKeyFile},
		"short but for the newline":    {file: "a.hs256", content: secret32[1:] + "\n", want: ErrKeyFile},
		"empty":                        {file: "a.hs256", content: "", want: ErrKeyFile},
		"public key as secret":         {file: "a.hs256", content: pemFile("PUBLIC KEY", spki), want: ErrKeyFile},
		"private key as secret":        {file: "a.hs256", content: pemFile("PRIVATE KEY", pkcs8), want: ErrKeyFile},
		"PEM after text as secret":     {file: "a.hs256", content: "my key:\n" + pemFile("PUBLIC KEY", spki), want: ErrKeyFile},
		"PEM by option as secret":      {file: "a.pem", content: pemFile("PUBLIC KEY", spki), alg: HS256, want: ErrKeyFile},
		"DER as secret":                {file: "a.hs256", content: string(spki), want: ErrKeyFile},
		"DER with a newline as secret": {file: "a.hs256", content: string(spki) + "\n", want: ErrKeyFile},
		"private DER as secret":        {file: "a.hs256", content: string(pkcs8), want: ErrKeyFile},
		"base64 DER as secret":         {file: "a.hs256", content: base64.StdEncoding.EncodeToString(spki) + "\n", want: ErrKeyFile},
		"JWK as secret":                {file: "a.hs256", content: `{"kty":"OKP","crv":"Ed25519","x":"` + secret32 + `"}`, want: ErrKeyFile},
		"JWKS as secret":               {file: "a.hs256", content: `{"keys":[]}` + strings.Repeat(" ", 32), want: ErrKeyFile},
		"JSON with a mark as secret":   {file: "a.hs256", content: "\ufeff{}" + strings.Repeat(" ", 32), want: ErrKeyFile},
		"SSH key as secret":            {file: "a.hs256", content: "ssh-ed25519 " + secret32, want: ErrKeyFile},
		"PEM as another algorithm":     {file: "a.pem", content: pemFile("PUBLIC KEY", spki), alg: RS256, want: ErrKeyFile},
		"secret as RS256":              {file: "a.hs256", content: secret32, alg: RS256, want: ErrKeyFile},
		"unknown option":               {file: "a.hs256", content: secret32, alg: "HS512", want: ErrKeyAlgorithm},
		"option none":                  {file: "a.hs256", content: secret32, alg: "none", want: ErrKeyAlgorithm},
		"secret without a name":        {file: "a.txt", content: secret32, want: ErrKeyFile},
		"extension in capitals":        {file: "a.HS256", content: secret32, want: ErrKeyFile},
		"huge":                         {file: "a.hs256", content: strings.Repeat("s", maxKeyFile+1), want: ErrKeyFile},
	} {
		keys, err := LoadKeys(KeyFile{Path: write(t, c.file, c.content), Algorithm: c.alg})
		switch {
		case c.want == nil && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want == nil && (keys.First().ID() != "a" || keys.First().Algorithm() != HS256):
			t.Errorf("%s: %s", name, keys.First())
		case c.want != nil && !errors.Is(err, c.want):
			t.Errorf("%s: %v, want %v", name, err, c.want)
		case err != nil && strings.Contains(err.Error(), secret32):
			t.Errorf("%s: the error shows the content: %v", name, err)
		}
	}
}

func TestOneTrailingNewlineIsDropped(t *testing.T) {
	t.Parallel()
	keys, err := LoadKeyFiles(write(t, "k1.hs256", testSecret+"\n"))
	if err != nil {
		t.Fatal(err)
	}
	v, _ := setup(t, func(o *Options) { o.Keys = keys })
	if _, err := v.Verify(context.Background(), forge(t, header(HS256), goodPayload(), testSecret)); err != nil {
		t.Error(err)
	}
	keys, err = LoadKeyFiles(write(t, "k1.hs256", testSecret+"\n\n"))
	if err != nil {
		t.Fatal(err)
	}
	v, _ = setup(t, func(o *Options) { o.Keys = keys })
	if _, err := v.Verify(context.Background(), forge(t, header(HS256), goodPayload(), testSecret+"\n")); err != nil {
		t.Error("only one newline is dropped:", err)
	}
}

func TestSeveralKeyFiles(t *testing.T) {
	t.Parallel()
	a, b := write(t, "a.hs256", testSecret), write(t, "b.hs256", testSecret)
	keys, err := LoadKeyFiles(a, b)
	if err != nil || keys.Len() != 2 || keys.First().ID() != "a" {
		t.Fatalf("%v, %v", keys, err)
	}
	if _, err := LoadKeyFiles(a, write(t, "a.hs256", testSecret)); !errors.Is(err, ErrKeyFile) {
		t.Errorf("two keys of one id: %v", err)
	}
	if keys, err = LoadKeys(KeyFile{Path: a}, KeyFile{Path: b, ID: "c"}); err != nil || keys.byID["c"].id != "c" {
		t.Errorf("an id by option: %v", err)
	}
	if _, err := LoadKeyFiles(); !errors.Is(err, ErrKeyFile) {
		t.Errorf("no file: %v", err)
	}
	// All problems come at once, and name their files.
	_, err = LoadKeyFiles(filepath.Join(t.TempDir(), "missing.hs256"), write(t, "short.hs256", "s"), a)
	if err == nil || !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "missing.hs256") || !strings.Contains(err.Error(), "short.hs256") {
		t.Errorf("%v", err)
	}
}

func TestCreateKeyFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "dev.hs256")
	if err := CreateKeyFile(path); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	before, _ := os.ReadFile(path)
	keys, err := LoadKeyFiles(path)
	if err != nil || keys.First().ID() != "dev" {
		t.Errorf("%v, %v", keys, err)
	}
	if err := CreateKeyFile(path); !errors.Is(err, fs.ErrExist) {
		t.Errorf("an existing key is replaced: %v", err)
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Error("the key was changed")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("something was left behind: %v", entries)
	}
	if err := CreateKeyFile(filepath.Join(dir, "dev.key")); !errors.Is(err, ErrKeyFile) {
		t.Errorf("a name that would not load: %v", err)
	}
}
