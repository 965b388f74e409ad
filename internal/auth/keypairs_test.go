package auth

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"strings"
	"sync"
	"testing"
)

// pairs are key pairs of every algorithm; making one of RSA takes long.
var pairs = sync.OnceValue(func() map[string]crypto.Signer {
	r, err := rsa.GenerateKey(rand.Reader, minRSA)
	if err != nil {
		panic(err)
	}
	e, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	_, d, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	return map[string]crypto.Signer{RS256: r, ES256: e, EdDSA: d}
})

func must[T any](t testing.TB) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func toPEM(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func privatePEM(t testing.TB, key crypto.Signer) string {
	return toPEM("PRIVATE KEY", must[[]byte](t)(x509.MarshalPKCS8PrivateKey(key)))
}

func publicPEM(t testing.TB, key crypto.Signer) string {
	return toPEM("PUBLIC KEY", must[[]byte](t)(x509.MarshalPKIXPublicKey(key.Public())))
}

// Each algorithm signs with its private key's file and is checked with either.
func TestKeyPairs(t *testing.T) {
	t.Parallel()
	for alg, pair := range pairs() {
		files := map[string]string{"private": privatePEM(t, pair), "with words around": "my key\n" + privatePEM(t, pair) + "the end\n"}
		switch k := pair.(type) {
		case *rsa.PrivateKey:
			files["PKCS 1"] = toPEM("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(k))
			files["public, PKCS 1"] = toPEM("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&k.PublicKey))
		case *ecdsa.PrivateKey:
			sec1 := toPEM("EC PRIVATE KEY", must[[]byte](t)(x509.MarshalECPrivateKey(k)))
			files["SEC 1"] = sec1
			files["SEC 1 with parameters"] = toPEM("EC PARAMETERS", []byte{6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 3, 1, 7}) + sec1
		}
		files["public"] = publicPEM(t, pair)
		signer := must[*Keys](t)(LoadKeyFiles(write(t, "k.pem", files["private"])))
		key := must[Key](t)(signer.Signer())
		token := mint(t, key, agentClaims())
		for name, content := range files {
			keys, err := LoadKeyFiles(write(t, "k.pem", content))
			if err != nil {
				t.Errorf("%s, %s: %v", alg, name, err)
				continue
			}
			v, _ := setup(t, func(o *Options) { o.Keys = keys })
			c, err := v.Verify(context.Background(), token)
			if err != nil || keys.First().Algorithm() != alg || keys.First().ID() != "k" || c.KeyID != "k" || c.Type != TypeToken {
				t.Errorf("%s, %s: %v, %v", alg, name, keys, err)
			}
			_, err = keys.Signer()
			if public := strings.HasPrefix(name, "public"); public != errors.Is(err, ErrCannotSign) {
				t.Errorf("%s, %s: signs: %v", alg, name, err)
			}
			if public := keys.First(); strings.HasPrefix(name, "public") {
				if _, err := Mint(public, agentClaims()); !errors.Is(err, ErrCannotSign) {
					t.Errorf("%s, %s: minted: %v", alg, name, err)
				}
			}
		}
	}
}

// Every key meets tokens of its own algorithm only, whatever the header says and
// whether or not it names the key.
func TestAlgorithmIsPinned(t *testing.T) {
	t.Parallel()
	for alg, pair := range pairs() {
		key := must[Key](t)(NewSigner("k1", pair))
		keys := must[*Keys](t)(NewKeys(key))
		v, _ := setup(t, func(o *Options) { o.Keys = keys })
		good := mint(t, key, agentClaims())
		parts := strings.Split(good, ".")
		for _, other := range []string{HS256, RS256, ES256, EdDSA, "HS384", "RS384", "RS512", "PS256", "ES384", "none", "None", ""} {
			if other == alg {
				continue
			}
			want := ErrAlgorithm
			for _, h := range []map[string]any{header(other), {"alg": other}} {
				// Signed by HMAC with what everybody knows of the key …
				refused(t, v, alg+" as "+other, forge(t, h, goodPayload(), publicPEM(t, pair)), want)
				// … or with the signature of a good token, or none at all.
				changed := strings.Split(forge(t, h, goodPayload(), ""), ".")
				refused(t, v, alg+" as "+other+", other signature", changed[0]+"."+changed[1]+"."+parts[2], want)
				refused(t, v, alg+" as "+other+", no signature", changed[0]+"."+changed[1]+".", want)
			}
		}
		refused(t, v, alg+" with another payload", parts[0]+"."+strings.Split(forge(t, header(alg), map[string]any{"kind": "operator"}, ""), ".")[1]+"."+parts[2], ErrSignature)
		stranger := must[Key](t)(NewSigner("k1", newPair(t, alg)))
		if alg != RS256 { // making another one takes long
			refused(t, v, alg+" of a stranger", mint(t, stranger, agentClaims()), ErrSignature)
		}
	}
}

func newPair(t testing.TB, alg string) crypto.Signer {
	switch alg {
	case ES256:
		return must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	case EdDSA:
		_, d, err := ed25519.GenerateKey(rand.Reader)
		return must[ed25519.PrivateKey](t)(d, err)
	}
	return pairs()[alg]
}

// One verifier holds keys of all algorithms; a token finds its own with a kid and
// without.
func TestKeysOfAllAlgorithms(t *testing.T) {
	t.Parallel()
	list := []Key{testKey(t, "hs", testSecret)}
	for alg, pair := range pairs() {
		list = append(list, must[Key](t)(NewSigner(alg, pair)))
	}
	keys := must[*Keys](t)(NewKeys(list...))
	v, _ := setup(t, func(o *Options) { o.Keys = keys })
	for _, k := range list {
		if _, err := v.Verify(context.Background(), mint(t, k, agentClaims())); err != nil {
			t.Errorf("%s: %v", k, err)
		}
	}
	if _, err := v.Verify(context.Background(), forge(t, map[string]any{"alg": HS256}, goodPayload(), testSecret)); err != nil {
		t.Errorf("without a kid: %v", err)
	}
	refused(t, v, "kid of a key of another algorithm", forge(t, map[string]any{"alg": HS256, "kid": RS256}, goodPayload(), testSecret), ErrAlgorithm)
}

func TestUnusableKeyPairs(t *testing.T) {
	t.Parallel()
	p384 := must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	good := publicPEM(t, pairs()[EdDSA])
	for name, c := range map[string]struct {
		content string
		want    error
	}{
		"P-384":                 {privatePEM(t, p384), ErrKeyAlgorithm},
		"P-384, public":         {publicPEM(t, p384), ErrKeyAlgorithm},
		"two keys":              {good + publicPEM(t, pairs()[ES256]), ErrKeyFile},
		"a pair in two blocks":  {good + privatePEM(t, pairs()[EdDSA]), ErrKeyFile},
		"only parameters":       {toPEM("EC PARAMETERS", []byte{5, 0}), ErrKeyFile},
		"a certificate":         {toPEM("CERTIFICATE", []byte{5, 0}), ErrKeyFile},
		"damaged":               {good[:len(good)-20], ErrKeyFile},
		"a damaged second one":  {good + good[:len(good)-20], ErrKeyFile},
		"rubbish within":        {toPEM("PUBLIC KEY", []byte("rubbish")), ErrKeyFile},
		"private rubbish":       {toPEM("PRIVATE KEY", []byte("rubbish")), ErrKeyFile},
		"encrypted":             {toPEM("ENCRYPTED PRIVATE KEY", []byte{5, 0}), ErrKeyFile},
		"encrypted, old form":   {"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nBQA=\n-----END RSA PRIVATE KEY-----\n", ErrKeyFile},
		"of another kind":       {toPEM("OPENSSH PRIVATE KEY", []byte{5, 0}), ErrKeyFile},
		"public called private": {strings.ReplaceAll(good, "PUBLIC", "PRIVATE"), ErrKeyFile},
		"empty":                 {"", ErrKeyFile},
		"small RSA":             {publicPEM(t, smallRSA), ErrKeyAlgorithm},
	} {
		keys, err := LoadKeyFiles(write(t, "k.pem", c.content))
		if !errors.Is(err, c.want) || keys != nil {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// smallRSA has 1024 bits.
var smallRSA = func() crypto.Signer {
	k, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		panic(err)
	}
	return k
}()

// FuzzPEM: whatever a file holds, it is a key of one of the algorithms or an
// error that shows nothing of it.
func FuzzPEM(f *testing.F) {
	for _, pair := range pairs() {
		f.Add(publicPEM(f, pair))
		f.Add(privatePEM(f, pair))
	}
	f.Add("-----BEGIN PUBLIC KEY-----")
	f.Add("-----BEGIN EC PARAMETERS-----\n-----END EC PARAMETERS-----\n")
	f.Fuzz(func(t *testing.T, content string) {
		k, err := parsePEM("k", []byte(content))
		if err == nil && methods[k.alg] == nil || err == nil && k.alg == HS256 {
			t.Fatalf("a key for %q", k.alg)
		}
		if err != nil && !errors.Is(err, ErrKeyFile) && !errors.Is(err, ErrKeyAlgorithm) {
			t.Fatal(err)
		}
	})
}
