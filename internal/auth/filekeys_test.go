package auth

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// files opens the keys of a directory that holds a secret called a and a key
// pair called b, with the log that they write.
func openedKeys(t *testing.T, more ...string) (dir string, keys *FileKeys, log *bytes.Buffer) {
	t.Helper()
	dir, log = t.TempDir(), new(bytes.Buffer)
	put(t, dir, "a.hs256", testSecret)
	put(t, dir, "b.pem", privatePEM(t, pairs()[EdDSA]))
	files := []KeyFile{{Path: dir}}
	for _, path := range more {
		files = append(files, KeyFile{Path: path})
	}
	return dir, must[*FileKeys](t)(OpenKeys(slog.New(slog.NewTextHandler(log, nil)), files...)), log
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func has(keys *FileKeys, id string) bool {
	_, err := keys.Lookup(context.Background(), id, true)
	return err == nil
}

// TestKeysAreRotated exchanges a key without a restart: the new one beside the
// old one, then the old one away.
func TestKeysAreRotated(t *testing.T) {
	t.Parallel()
	dir, keys, log := openedKeys(t)
	v, _ := setup(t, func(o *Options) { o.Keys = keys })
	old := must[Key](t)(keys.Current().Signer())
	token := mint(t, old, agentClaims())
	put(t, dir, "c.pem", privatePEM(t, pairs()[ES256]))
	put(t, dir, "notes.txt", "no key")
	put(t, dir, ".hidden.pem", "no key")
	keys.Look()
	fresh := must[Key](t)(NewSigner("c", pairs()[ES256]))
	for _, one := range []string{token, mint(t, fresh, agentClaims())} {
		if _, err := v.Verify(context.Background(), one); err != nil {
			t.Error(err)
		}
	}
	told := 0
	keys.OnChange(func() { told++ })
	used, err := v.Verify(context.Background(), token)
	if err != nil || used.Withdrawn() {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "a.hs256")); err != nil {
		t.Fatal(err)
	}
	keys.Look()
	if !has(keys, "a") || told != 0 {
		t.Error("a file that is being replaced has lost its key")
	}
	keys.Look()
	if !used.Withdrawn() || told != 1 {
		t.Errorf("told %d times", told)
	}
	refused(t, v, "a removed key", token, ErrUnknownKey)
	if _, err := v.Verify(context.Background(), mint(t, fresh, agentClaims())); err != nil {
		t.Error(err)
	}
	if text := log.String(); strings.Count(text, "have changed") != 2 || strings.Contains(text, testSecret) {
		t.Error(text)
	}
}

// A key of a file that is taken away is withdrawn also beside published keys that
// were never fetched: those said of every key that it may still be good.
func TestKeyIsWithdrawnBesideKeysThatAreAway(t *testing.T) {
	t.Parallel()
	dir, keys, _ := openedKeys(t)
	away := newPublisher(t)
	v, _ := setup(t, func(o *Options) { o.Keys = Sources{keys, away.JWKS} })
	used, err := v.Verify(context.Background(), mint(t, testKey(t, "a", testSecret), agentClaims()))
	if err != nil || used.Withdrawn() {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "a.hs256")); err != nil {
		t.Fatal(err)
	}
	keys.Look()
	keys.Look()
	if !used.Withdrawn() {
		t.Error("the key is taken away, and what it has signed still counts")
	}
}

// A key that another one replaces under its name is not accepted any more.
func TestKeyIsReplaced(t *testing.T) {
	t.Parallel()
	dir, keys, _ := openedKeys(t)
	v, _ := setup(t, func(o *Options) { o.Keys = keys })
	token := mint(t, testKey(t, "a", testSecret), agentClaims())
	used, err := v.Verify(context.Background(), token)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "a.hs256", testSecret+"2")
	keys.Look()
	if !used.Withdrawn() {
		t.Error("a key of the same name is taken for the one that it replaces")
	}
	refused(t, v, "a replaced key", token, ErrSignature)
	if _, err := v.Verify(context.Background(), mint(t, testKey(t, "a", testSecret+"2"), agentClaims())); err != nil {
		t.Error(err)
	}
}

// A file may be half written when it is looked at. If it is still no key at the
// next look, its old key is not accepted any more: nobody can say which one is
// meant, and an operator may have tried to withdraw it.
func TestUnusableFileLosesItsKey(t *testing.T) {
	t.Parallel()
	dir, keys, log := openedKeys(t)
	whole := privatePEM(t, pairs()[ES256])
	put(t, dir, "b.pem", whole[:40])
	keys.Look()
	if !has(keys, "b") {
		t.Error("a file that is being written has lost its key")
	}
	put(t, dir, "b.pem", whole)
	keys.Look()
	if k, _ := keys.Lookup(context.Background(), "b", true); len(k) != 1 || k[0].Algorithm() != ES256 {
		t.Errorf("%v", k)
	}
	put(t, dir, "b.pem", whole[:40])
	keys.Look()
	keys.Look()
	if has(keys, "b") || !has(keys, "a") {
		t.Error("an unusable file keeps its old key, or another one's")
	}
	keys.Look()
	if n := strings.Count(log.String(), "not usable"); n != 1 {
		t.Errorf("told %d times: %s", n, log)
	}
	put(t, dir, "b.pem", whole)
	keys.Look()
	if !has(keys, "b") {
		t.Error("a mended file has no key")
	}
}

func TestKeysThatDoNotGoTogether(t *testing.T) {
	t.Parallel()
	other := t.TempDir()
	put(t, other, "x.hs256", testSecret)
	_, keys, log := openedKeys(t, other)
	put(t, other, "b.hs256", testSecret)
	keys.Look()
	if has(keys, "b") || !has(keys, "a") || !has(keys, "x") {
		t.Errorf("%v", keys.Current())
	}
	keys.Look()
	if n := strings.Count(log.String(), "do not go together"); n != 1 {
		t.Errorf("told %d times: %s", n, log)
	}
	for i := range maxKeys + 3 {
		put(t, other, "many"+string(rune('a'+i))+".hs256", testSecret)
	}
	keys.Look()
	if n := keys.Current().Len(); n != maxKeys {
		t.Errorf("%d keys", n)
	}
}

// With no file left there is no key, and nobody gets in.
func TestAllKeysAreGone(t *testing.T) {
	t.Parallel()
	dir, keys, _ := openedKeys(t)
	v, _ := setup(t, func(o *Options) { o.Keys = keys })
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	keys.Look()
	keys.Look()
	refused(t, v, "no key is left", mint(t, testKey(t, "a", testSecret), agentClaims()), ErrUnknownKey)
	refused(t, v, "no key is left, no kid", forge(t, map[string]any{"alg": HS256}, goodPayload(), testSecret), ErrUnknownKey)
}

func TestOpenKeysRefuses(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"an empty directory": t.TempDir(), "no file": filepath.Join(t.TempDir(), "k.pem"), "no key": write(t, "k.pem", "")} {
		if keys, err := OpenKeys(nil, KeyFile{Path: path}); !errors.Is(err, ErrKeyFile) || keys != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Watch is what does the looking while the gateway runs.
func TestWatchFollowsTheFiles(t *testing.T) {
	t.Parallel()
	dir, keys, _ := openedKeys(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		keys.Watch(ctx)
	}()
	if err := os.Remove(filepath.Join(dir, "a.hs256")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the key is gone", func() bool { return !has(keys, "a") })
	cancel()
	<-done
}
