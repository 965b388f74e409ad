package auth

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/aether-gateway/gateway/internal/acl"
)

// certificate is one that a handshake has verified; change may change it.
func certificate(t *testing.T, change ...func(*x509.Certificate)) []*x509.Certificate {
	t.Helper()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(255), Subject: pkix.Name{CommonName: "coder", Organization: []string{"Acme"}},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(time.Hour), DNSNames: []string{"coder.example"}, EmailAddresses: []string{"coder@example"},
		URIs: []*url.URL{must[*url.URL](t)(url.Parse("spiffe://acme/coder"))},
	}
	for _, f := range change {
		f(c)
	}
	public, private, _ := ed25519.GenerateKey(rand.Reader)
	der := must[[]byte](t)(x509.CreateCertificate(rand.Reader, c, c, public, private))
	return []*x509.Certificate{must[*x509.Certificate](t)(x509.ParseCertificate(der))}
}

var coder = Identity{Kind: acl.Agent, Workspace: "prod", Implementation: "coder", Specifier: "1"}

func TestCertificates(t *testing.T) {
	t.Parallel()
	claims := Claims{Kind: KindAgent, Workspaces: []string{"prod"}, Impl: "coder", Spec: "*"}
	for name, c := range map[string]struct {
		entry  CertificateEntry
		change func(*x509.Certificate)
		id     Identity
		want   error
	}{
		"subject":               {entry: CertificateEntry{Subject: "CN=coder,O=Acme"}},
		"dns":                   {entry: CertificateEntry{DNS: "coder.example"}},
		"uri":                   {entry: CertificateEntry{URI: "spiffe://acme/coder"}},
		"email":                 {entry: CertificateEntry{Email: "coder@example"}},
		"part of the subject":   {entry: CertificateEntry{Subject: "CN=coder"}, want: ErrCertificate},
		"subject in capitals":   {entry: CertificateEntry{Subject: "CN=Coder,O=Acme"}, want: ErrCertificate},
		"wildcard":              {entry: CertificateEntry{DNS: "*.example"}, want: ErrCertificate},
		"name of another sort":  {entry: CertificateEntry{DNS: "coder@example"}, want: ErrCertificate},
		"common name as a name": {entry: CertificateEntry{DNS: "coder"}, want: ErrCertificate},
		"longer uri":            {entry: CertificateEntry{URI: "spiffe://acme/code"}, want: ErrCertificate},
		"expired":               {entry: CertificateEntry{DNS: "coder.example"}, change: func(c *x509.Certificate) { c.NotAfter = now }, want: ErrCertificate},
		"not yet":               {entry: CertificateEntry{DNS: "coder.example"}, change: func(c *x509.Certificate) { c.NotBefore = now.Add(time.Second) }, want: ErrCertificate},
		"another kind":          {entry: CertificateEntry{DNS: "coder.example"}, id: Identity{Kind: acl.Bridge, Implementation: "coder", Specifier: "1"}, want: ErrNotCovered},
		"another workspace":     {entry: CertificateEntry{DNS: "coder.example"}, id: Identity{Kind: acl.Agent, Workspace: "dev", Implementation: "coder", Specifier: "1"}, want: ErrNotCovered},
		"another impl":          {entry: CertificateEntry{DNS: "coder.example"}, id: Identity{Kind: acl.Agent, Workspace: "prod", Implementation: "c", Specifier: "1"}, want: ErrNotCovered},
	} {
		c.entry.Claims = claims
		table := must[*Certificates](t)(NewCertificates(nil, c.entry))
		v, _ := setup(t, func(o *Options) { o.Certificates = table })
		if c.id.Kind == acl.KindUnknown {
			c.id = coder
		}
		var changes []func(*x509.Certificate)
		if c.change != nil {
			changes = append(changes, c.change)
		}
		chain := certificate(t, changes...)
		p, cred, err := v.Authenticate(context.Background(), Shown{Transport: Transport{Certificates: chain}}, c.id)
		if !errors.Is(err, c.want) || (err == nil) != (cred != nil) || (err == nil) != (p.Kind == acl.Agent) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err == nil && (cred.Type != TypeCertificate || cred.ID != "ff" || !cred.ExpiresAt.Equal(chain[0].NotAfter) || len(cred.Fingerprint) != 64) {
			t.Errorf("%s: %+v", name, cred)
		}
	}
}

// A certificate is only a way of connecting if there is no entry for it, or if
// there is another credential.
func TestCertificateAlone(t *testing.T) {
	t.Parallel()
	entry := CertificateEntry{DNS: "coder.example", Claims: Claims{Kind: KindAgent, Workspaces: []string{"prod"}, Impl: "coder", Spec: "*"}}
	table := must[*Certificates](t)(NewCertificates(nil, entry))
	with, key := setup(t, func(o *Options) { o.Certificates, o.Anonymous = table, true })
	without, _ := setup(t)
	transport := Transport{Peer: netip.MustParseAddr("127.0.0.1"), Certificates: certificate(t)}
	if _, _, err := without.Authenticate(context.Background(), Shown{Transport: transport}, coder); !errors.Is(err, ErrCertificate) {
		t.Errorf("without an entry: %v", err)
	}
	other := Identity{Kind: acl.User, UserID: "u", Window: "w"}
	token := mint(t, key, Claims{Kind: KindUser, User: "u", ExpiresAt: now.Add(time.Hour)})
	p, c, err := with.Authenticate(context.Background(), Shown{Authorization: []string{"Bearer " + token}, Transport: transport}, other)
	if err != nil || p.Kind != acl.User || c.Type != TypeToken {
		t.Errorf("a token and a certificate: %v", err)
	}
	if _, _, err := with.Authenticate(context.Background(), Shown{Authorization: []string{token + "x"}, Transport: transport}, coder); err == nil {
		t.Error("a bad token is replaced by a certificate")
	}
	dropped := must[*Certificates](t)(NewCertificates(func([]*x509.Certificate) error { return errors.New("unknown authority") }, entry))
	v, _ := setup(t, func(o *Options) { o.Certificates = dropped })
	if _, _, err := v.Authenticate(context.Background(), Shown{Transport: transport}, coder); !errors.Is(err, ErrCertificate) {
		t.Errorf("an authority that was dropped: %v", err)
	}
}

func TestCertificateEntries(t *testing.T) {
	t.Parallel()
	good := Claims{Kind: KindService, Workspaces: []string{"*"}, Impl: "i", Spec: "s"}
	for name, entries := range map[string][]CertificateEntry{
		"no name":          {{Claims: good}},
		"two names":        {{DNS: "a", URI: "b", Claims: good}},
		"twice":            {{DNS: "a", Claims: good}, {DNS: "a", Claims: good}},
		"no identity":      {{DNS: "a", Claims: Claims{Kind: KindService}}},
		"unknown kind":     {{DNS: "a", Claims: Claims{Kind: "root"}}},
		"bad workspace":    {{DNS: "a", Claims: Claims{Kind: KindAgent, Workspaces: []string{"a b"}, Impl: "i", Spec: "s"}}},
		"too many of them": make([]CertificateEntry, maxCertificates+1),
	} {
		if _, err := NewCertificates(nil, entries...); !errors.Is(err, ErrCertificates) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Of two entries for one certificate the first counts.
	first, second := good, good
	first.Impl, second.Impl = "first", "second"
	table := must[*Certificates](t)(NewCertificates(nil, CertificateEntry{Email: "coder@example", Claims: first}, CertificateEntry{Subject: "CN=coder,O=Acme", Claims: second}))
	if c, err := table.credential(certificate(t), now); err != nil || c.Impl != "first" {
		t.Errorf("%v, %v", c, err)
	}
}

// TestAnonymous: without a credential only those who may, only from this machine,
// and only if the operator said so.
func TestAnonymous(t *testing.T) {
	t.Parallel()
	on, key := setup(t, func(o *Options) { o.Anonymous = true })
	off, _ := setup(t)
	may := map[acl.Kind]bool{acl.Agent: true, acl.UniqueTask: true, acl.Task: true, acl.User: true}
	for _, k := range acl.Kinds() {
		id := Identity{Kind: k, Workspace: "w", Implementation: "i", Specifier: "s", UserID: "u", Window: "x"}
		for peer, local := range map[string]bool{"127.0.0.1": true, "127.9.9.9": true, "::1": true, "::ffff:127.0.0.1": true, "10.0.0.1": false, "fe80::1": false} {
			for _, forwarded := range []bool{false, true} {
				shown := Shown{Transport: Transport{Peer: netip.MustParseAddr(peer), Forwarded: forwarded}}
				want := ErrNoCredential
				if may[k] && local && !forwarded {
					want = nil
				}
				p, c, err := on.Authenticate(context.Background(), shown, id)
				if !errors.Is(err, want) {
					t.Errorf("%s from %s, forwarded %v: %v, want %v", k, peer, forwarded, err, want)
				}
				if err == nil && (p.Kind != k || p.Workspace != "w" || c.Type != TypeAnonymous || !c.ExpiresAt.After(now)) {
					t.Errorf("%s from %s: %+v, %+v", k, peer, p, c)
				}
				if _, _, err := off.Authenticate(context.Background(), shown, id); !errors.Is(err, ErrNoCredential) {
					t.Errorf("switched off: %v", err)
				}
			}
		}
	}
	local := Transport{Peer: netip.MustParseAddr("127.0.0.1")}
	if _, _, err := on.Authenticate(context.Background(), Shown{}, coder); !errors.Is(err, ErrNoCredential) {
		t.Errorf("a peer without an address: %v", err)
	}
	if _, _, err := on.Authenticate(context.Background(), Shown{Authorization: []string{"Bearer x"}, Transport: local}, coder); !errors.Is(err, ErrMalformedToken) {
		t.Errorf("a bad token is as good as none: %v", err)
	}
	if _, _, err := on.Authenticate(context.Background(), Shown{Authorization: []string{mint(t, key, agentClaims())}, Transport: local}, Identity{Kind: acl.Agent, Workspace: "other", Implementation: "coder", Specifier: "1"}); !errors.Is(err, ErrNotCovered) {
		t.Errorf("a token covers more on this machine: %v", err)
	}
	for _, id := range []Identity{{Kind: acl.Agent, Workspace: "*", Implementation: "i", Specifier: "s"}, {Kind: acl.User, UserID: "u", Window: "w", Workspace: "*"}, {Kind: acl.Agent, Workspace: "w", Implementation: "i", Specifier: "*"}} {
		if _, _, err := on.Authenticate(context.Background(), Shown{Transport: local}, id); !errors.Is(err, ErrInvalidIdentity) {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// knownKeys are API keys in memory.
type knownKeys map[string]Claims

func (k knownKeys) Find(_ context.Context, key string) (string, Claims, error) {
	c, ok := k[key]
	if !ok {
		return "", Claims{}, fmt.Errorf("%w", ErrAPIKey)
	}
	return "id-" + key[len(APIKeyPrefix):], c, nil
}

func TestAPIKeys(t *testing.T) {
	t.Parallel()
	forever := agentClaims()
	forever.ExpiresAt = time.Time{}
	ended := agentClaims()
	ended.ExpiresAt = now
	v, _ := setup(t, func(o *Options) {
		o.APIKeys = knownKeys{"ak_good": agentClaims(), "ak_forever": forever, "ak_ended": ended, "ak_nobody": {Kind: KindAgent}}
	})
	none, _ := setup(t)
	show := func(v *Verifier, key string) (*Credential, error) {
		_, c, err := v.Authenticate(context.Background(), Shown{Init: map[string]string{"x-api-key": key}}, coder)
		return c, err
	}
	c, err := show(v, "ak_good")
	if err != nil || c.Type != TypeAPIKey || c.KeyID != "id-good" || c.ExpiresAt.IsZero() || c.Fingerprint != "" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := show(v, "ak_forever"); err != nil || !c.ExpiresAt.IsZero() {
		t.Errorf("%+v, %v", c, err)
	}
	for key, want := range map[string]error{"ak_ended": ErrAPIKey, "ak_other": ErrAPIKey, "ak_": ErrAPIKey, "ak_nobody": ErrClaims, "ak_" + strings.Repeat("x", maxAPIKey): ErrAPIKey} {
		if _, err := show(v, key); !errors.Is(err, want) {
			t.Errorf("%.20s: %v, want %v", key, err, want)
		}
	}
	if _, err := show(none, "ak_good"); !errors.Is(err, ErrAPIKey) {
		t.Errorf("a gateway without API keys: %v", err)
	}
}

// One text may have several signatures that hold: a list of revoked tokens must
// not be dodged by another one.
func TestFingerprintLeavesOutTheSignature(t *testing.T) {
	t.Parallel()
	key := must[Key](t)(NewSigner("k1", pairs()[ES256]))
	keys := must[*Keys](t)(NewKeys(key))
	v, _ := setup(t, func(o *Options) { o.Keys = keys })
	token := mint(t, key, agentClaims())
	parts := strings.Split(token, ".")
	signature := must[[]byte](t)(v.parser.DecodeSegment(parts[2]))
	// (r, n - s) holds if (r, s) does.
	order, _ := new(big.Int).SetString("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551", 16)
	s := new(big.Int).Sub(order, new(big.Int).SetBytes(signature[32:]))
	s.FillBytes(signature[32:])
	twin := parts[0] + "." + parts[1] + "." + b64(signature)
	a, err := v.Verify(context.Background(), token)
	if err != nil {
		t.Fatal(err)
	}
	b, err := v.Verify(context.Background(), twin)
	if err != nil || a.Fingerprint != b.Fingerprint || twin == token {
		t.Errorf("%v", err)
	}
}
