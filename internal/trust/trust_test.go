package trust

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/store"
	"github.com/aether-gateway/gateway/internal/store/sqlite"
	"github.com/aether-gateway/gateway/internal/store/sqlite/sqlitetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// faulty is a store that a test can take away, and that counts how often it is
// asked for changes.
type faulty struct {
	*sqlite.Store
	away  atomic.Bool
	asked atomic.Int64
}

var errAway = errors.New("the database is away")

func (f *faulty) APIKeyChanges(ctx context.Context, after store.Cursor, limit int) ([]store.APIKey, store.Cursor, error) {
	f.asked.Add(1)
	if f.away.Load() {
		return nil, after, errAway
	}
	return f.Store.APIKeyChanges(ctx, after, limit)
}

func newStore(t *testing.T) *faulty {
	t.Helper()
	file := sqlitetest.Open(t, filepath.Join(t.TempDir(), "aether.db"))
	t.Cleanup(func() { _ = file.Close() })
	s, err := sqlite.Open(context.Background(), file, sqlite.Options{})
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	return &faulty{Store: s}
}

// keep is a gateway's copy, known by now.
func keep(t *testing.T, s *faulty) *Credentials {
	t.Helper()
	c := Keep(Options{Store: s, Feed: s})
	t.Cleanup(c.Close)
	<-c.Known()
	return c
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func agentKey(name string) NewKey {
	return NewKey{
		Name: name, CreatedBy: "op", ExpiresAt: time.Now().Add(time.Hour),
		Claims: auth.Claims{Kind: auth.KindAgent, Workspaces: []string{"w"}, Impl: "echo", Spec: "*"},
	}
}

func find(t *testing.T, c *Credentials, text string) (auth.Claims, error) {
	t.Helper()
	_, claims, err := c.Find(context.Background(), text)
	return claims, err
}

func TestKeyLife(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newStore(t)
	c := keep(t, s)
	text, made, err := c.CreateKey(ctx, agentKey("build"))
	check(t, err)
	if !strings.HasPrefix(text, auth.APIKeyPrefix+made.ID+"_") {
		t.Fatalf("the text of key %s is of another form", made.ID)
	}
	id, claims, err := c.Find(ctx, text)
	if err != nil || id != made.ID || claims.Kind != auth.KindAgent || claims.Subject != "agent/echo/*" || claims.ExpiresAt.Sub(made.ExpiresAt).Abs() > time.Millisecond {
		t.Fatalf("%s, %+v, %v", id, claims, err)
	}
	other, _, err := c.CreateKey(ctx, agentKey("other"))
	check(t, err)
	for what, wrong := range map[string]string{
		"empty": "", "prefix alone": auth.APIKeyPrefix, "a longer secret": text + "a", "a shorter one": text[:len(text)-1],
		"upper case": strings.ToUpper(text), "another key's secret": text[:len(text)-secretLength] + other[len(other)-secretLength:],
		"another key's id": other[:len(other)-secretLength] + text[len(text)-secretLength:],
		"an unknown id":    keyText(drawn(idBytes), drawn(secretBytes)),
	} {
		if _, err := find(t, c, wrong); !errors.Is(err, auth.ErrAPIKey) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Nothing that is kept or shown has the secret.
	secret := text[len(text)-secretLength:]
	stored, err := s.APIKeys(ctx)
	check(t, err)
	list, err := c.ListKeys(ctx, store.KeyPlace{}, 100)
	check(t, err)
	if shown := fmt.Sprintf("%+v %+v %+v", stored, list, made); strings.Contains(shown, secret) {
		t.Error("the secret is kept")
	}
	if len(list) != 2 || list[0].Name != "build" || list[0].CreatedBy != "op" || !list[0].RevokedAt.IsZero() {
		t.Errorf("listed %+v", list)
	}

	revoked, was, err := c.RevokeKey(ctx, "build", "op2")
	if err != nil || was || revoked.ID != made.ID || revoked.RevokedBy != "op2" {
		t.Fatalf("revoked %+v, %v, %v", revoked, was, err)
	}
	if _, err := find(t, c, text); !errors.Is(err, auth.ErrAPIKey) {
		t.Errorf("a revoked key: %v", err)
	}
	if _, err := find(t, c, other); err != nil {
		t.Errorf("the other key: %v", err)
	}
	for _, again := range []string{made.ID, "build"} {
		if k, was, err := c.RevokeKey(ctx, again, "op"); err != nil || !was || k.ID != made.ID || k.RevokedBy != "op2" {
			t.Errorf("revoked again by %s: %+v, %v, %v", again, k, was, err)
		}
	}
	if _, _, err := c.RevokeKey(ctx, "never made", "op"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("revoked what is not there: %v", err)
	}
}

func TestKeysThatCannotBeMade(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := keep(t, newStore(t))
	for what, change := range map[string]func(*NewKey){
		"no name":               func(k *NewKey) { k.Name = "" },
		"a long name":           func(k *NewKey) { k.Name = strings.Repeat("n", maxKeyName+1) },
		"a name with a control": func(k *NewKey) { k.Name = "a\nb" },
		"a name like an id":     func(k *NewKey) { k.Name = "hxttsdcgqmlwmac2" },
		"a name of no text":     func(k *NewKey) { k.Name = "\xff" },
		"expired":               func(k *NewKey) { k.ExpiresAt = time.Now().Add(-time.Second) },
		"a user's for ever": func(k *NewKey) {
			k.Claims = auth.Claims{Kind: auth.KindUser, User: "u", Workspaces: []string{"w"}}
			k.ExpiresAt = time.Time{}
		},
	} {
		k := agentKey("k")
		change(&k)
		if _, _, err := c.CreateKey(ctx, k); !errors.Is(err, ErrKey) {
			t.Errorf("%s: %v", what, err)
		}
	}
	k := agentKey("k")
	k.Claims.Workspaces = []string{"*"}
	if _, _, err := c.CreateKey(ctx, k); !errors.Is(err, auth.ErrClaims) {
		t.Errorf("claims of nobody: %v", err)
	}
	k = agentKey("k")
	k.Claims.Roles = []string{strings.Repeat("r", auth.MaxToken)}
	if _, _, err := c.CreateKey(ctx, k); !errors.Is(err, ErrKey) {
		t.Errorf("endless claims: %v", err)
	}
	_, made, err := c.CreateKey(ctx, agentKey("twice"))
	check(t, err)
	var taken *store.NameError
	if _, _, err := c.CreateKey(ctx, agentKey("twice")); !errors.As(err, &taken) || taken.ID != made.ID {
		t.Errorf("a second key of one name: %v", err)
	}
	if _, _, err := c.RevokeKey(ctx, "twice", "op"); err != nil {
		t.Error(err)
	}
	if _, _, err := c.CreateKey(ctx, agentKey("twice")); err != nil {
		t.Errorf("a key with the name of a revoked one: %v", err)
	}
}

// Which key a name means, of keys from before names were taken once as well.
func TestChoose(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	good, old := now.Add(time.Second), now.Add(-time.Second)
	all := []Key{
		{ID: "1", Name: "once"},
		{ID: "2", Name: "over", RevokedAt: old},
		{ID: "3", Name: "over", ExpiresAt: old},
		{ID: "4", Name: "renewed"},
		{ID: "5", Name: "renewed", ExpiresAt: old},
		{ID: "6", Name: "renewed", RevokedAt: old},
		{ID: "7", Name: "twice", ExpiresAt: good},
		{ID: "8", Name: "twice"},
		{ID: "9", Name: "7"},
	}
	for name, want := range map[string]string{"once": "1", "over": "3", "renewed": "4", "7": "7", "8": "8", "9": "9"} {
		if k, err := choose(all, name, now); err != nil || k.ID != want {
			t.Errorf("%s: %s, %v; want %s", name, k.ID, err, want)
		}
	}
	if _, err := choose(all, "twice", now); !errors.Is(err, ErrAmbiguous) || !strings.Contains(err.Error(), "7, 8") {
		t.Errorf("twice: %v", err)
	}
	for range 40 {
		all = append(all, Key{ID: "id", Name: "twice"})
	}
	if _, err := choose(all, "twice", now); !strings.Contains(err.Error(), "22 more") {
		t.Errorf("often: %v", err)
	}
}

// A key works on another gateway at once, and is worthless there soon after it
// was revoked; who keeps its copy for sessions is told.
func TestKeysOfAnotherGateway(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newStore(t)
	here, there := keep(t, s), keep(t, s)
	told := make(chan struct{}, 10)
	there.OnChange(func() { told <- struct{}{} })
	text, _, err := here.CreateKey(ctx, agentKey("k"))
	check(t, err)
	if _, err := find(t, there, text); err != nil {
		t.Fatal(err)
	}
	_, _, err = here.RevokeKey(ctx, "k", "op")
	check(t, err)
	late := time.After(20 * time.Second)
	for {
		if _, err := find(t, there, text); errors.Is(err, auth.ErrAPIKey) {
			break
		}
		select {
		case <-told:
		case <-late:
			t.Fatal("the key is still good")
		}
	}
}

// However many unknown keys are tried, the store is asked a few times a second,
// and who has a known key does not wait.
func TestUnknownKeysCostLittle(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	c := keep(t, s)
	begun, before := time.Now(), s.asked.Load()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			for range 10 {
				if _, err := find(t, c, keyText(drawn(idBytes), drawn(secretBytes))); !errors.Is(err, auth.ErrAPIKey) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	most := int64(time.Since(begun)/lookPause) + 3 + int64(time.Since(begun)/time.Second)
	if asked := s.asked.Load() - before; asked > most {
		t.Errorf("500 unknown keys asked the store %d times, want %d at most", asked, most)
	}
}

// While the database is away known credentials count as before, unknown ones may
// be tried again, and a gateway that has never had the copy lets nobody in.
func TestStoreAway(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newStore(t)
	c := keep(t, s)
	text, _, err := c.CreateKey(ctx, agentKey("k"))
	check(t, err)
	check(t, c.Revoke(ctx, store.Revocation{What: store.RevokedToken, ID: "lost"}))
	s.away.Store(true)
	if _, err := find(t, c, text); err != nil {
		t.Errorf("a known key: %v", err)
	}
	if _, err := find(t, c, keyText(drawn(idBytes), drawn(secretBytes))); !errors.Is(err, auth.ErrKeysAway) {
		t.Errorf("an unknown key: %v", err)
	}
	if err := c.Revoked(&auth.Credential{Claims: auth.Claims{ID: "lost"}}, ""); !errors.Is(err, auth.ErrRevoked) {
		t.Errorf("a revoked token: %v", err)
	}
	new := Keep(Options{Store: s, Feed: s})
	defer new.Close()
	if err := new.Revoked(&auth.Credential{}, ""); !errors.Is(err, auth.ErrKeysAway) {
		t.Errorf("before the first copy: %v", err)
	}
	select {
	case <-new.Known():
		t.Error("known, though the store is away")
	default:
	}
	s.away.Store(false)
	<-new.Known()
	if err := new.Revoked(&auth.Credential{}, ""); err != nil {
		t.Error(err)
	}
}

func TestRevoked(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := keep(t, newStore(t))
	now := time.Unix(1_700_000_000, 900_000_000)
	for _, r := range []store.Revocation{
		{What: store.RevokedToken, ID: "jti"},
		{What: store.RevokedToken, ID: "print"},
		{What: store.RevokedSubject, ID: "sub", Before: now},
		{What: store.RevokedUser, ID: "alice", Before: now},
		{What: store.RevokedIdentity, ID: "ag::w::i::s", Before: now},
	} {
		check(t, c.Revoke(ctx, r))
	}
	issued := func(cl auth.Claims, s int) auth.Claims {
		cl.IssuedAt = time.Unix(now.Unix()+int64(s), 0)
		return cl
	}
	for _, x := range []struct {
		what     string
		c        auth.Credential
		identity string
		revoked  bool
	}{
		{"another token", auth.Credential{Claims: auth.Claims{ID: "other", Subject: "other", User: "bob"}}, "ag::w::i::other", false},
		{"nothing is said", auth.Credential{}, "", false},
		{"the token", auth.Credential{Claims: issued(auth.Claims{ID: "jti"}, 1000)}, "", true},
		{"its fingerprint", auth.Credential{Fingerprint: "print"}, "", true},
		{"a subject called as the token", auth.Credential{Claims: auth.Claims{Subject: "jti"}}, "", false},
		{"the subject, before", auth.Credential{Claims: issued(auth.Claims{Subject: "sub"}, -1)}, "", true},
		{"the subject, in that second", auth.Credential{Claims: issued(auth.Claims{Subject: "sub"}, 0)}, "", true},
		{"the subject, after", auth.Credential{Claims: issued(auth.Claims{Subject: "sub"}, 1)}, "", false},
		{"the subject, at no time", auth.Credential{Claims: auth.Claims{Subject: "sub"}}, "", true},
		{"the user", auth.Credential{Claims: issued(auth.Claims{User: "alice"}, -1)}, "us::alice::1", true},
		{"the user, after", auth.Credential{Claims: issued(auth.Claims{User: "alice"}, 1)}, "us::alice::1", false},
		{"the identity", auth.Credential{Claims: issued(auth.Claims{}, -1)}, "ag::w::i::s", true},
		{"another identity", auth.Credential{Claims: issued(auth.Claims{}, -1)}, "ag::w::i::ss", false},
		{"a key that nobody knows", auth.Credential{Type: auth.TypeAPIKey, KeyID: "k"}, "", true},
	} {
		if err := c.Revoked(&x.c, x.identity); errors.Is(err, auth.ErrRevoked) != x.revoked {
			t.Errorf("%s: %v", x.what, err)
		}
	}
}

func TestWhatCannotBeRevoked(t *testing.T) {
	t.Parallel()
	c := keep(t, newStore(t))
	for what, r := range map[string]store.Revocation{
		"nothing": {}, "no name": {What: store.RevokedToken}, "another sort": {What: "key", ID: "k"},
		"no text": {What: store.RevokedUser, ID: "\xff"}, "a zero byte": {What: store.RevokedUser, ID: "a\x00"},
		"endless":          {What: store.RevokedUser, ID: strings.Repeat("u", maxRevocationText+1)},
		"an endless story": {What: store.RevokedUser, ID: "u", Reason: strings.Repeat("u", maxRevocationText+1)},
	} {
		if err := c.Revoke(context.Background(), r); !errors.Is(err, ErrRevocation) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// When a key was used is stored, at the latest with the end.
func TestKeyUse(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := newStore(t)
	c := Keep(Options{Store: s, Feed: s})
	text, _, err := c.CreateKey(ctx, agentKey("k"))
	check(t, err)
	if _, err := find(t, c, text); err != nil {
		t.Fatal(err)
	}
	c.Close()
	all, err := s.APIKeys(ctx)
	if err != nil || len(all) != 1 || time.Since(all[0].UsedAt) > time.Minute {
		t.Errorf("%+v, %v", all, err)
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add(keyText(drawn(idBytes), drawn(secretBytes)))
	f.Add("ak_")
	f.Add("ak__")
	f.Fuzz(func(t *testing.T, text string) {
		id, secret, ok := parseKey(text)
		if !ok {
			if id != "" || secret != "" {
				t.Error("parts of what is no key")
			}
			return
		}
		if keyText(id, secret) != text {
			t.Error("two texts are one key")
		}
	})
}
