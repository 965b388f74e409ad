package auth

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestJWKSEntries(t *testing.T) {
	t.Parallel()
	all := pairs()
	with := func(entry map[string]any, name string, value any) map[string]any {
		entry[name] = value
		return entry
	}
	for name, c := range map[string]struct {
		entry   map[string]any
		alg     string // "" is none
		problem bool
	}{
		"alg":               {with(published("k", all[RS256]), "alg", RS256), RS256, false},
		"for PS256":         {with(published("k", all[RS256]), "alg", "PS256"), "", false},
		"for HS256":         {with(published("k", all[RS256]), "alg", HS256), "", false},
		"Ed25519 by name":   {with(published("k", all[EdDSA]), "alg", "Ed25519"), EdDSA, false},
		"for encryption":    {with(published("k", all[RS256]), "use", "enc"), "", false},
		"for signing only":  {with(published("k", all[RS256]), "key_ops", []string{"sign"}), "", false},
		"for verifying":     {with(published("k", all[RS256]), "key_ops", []string{"verify"}), RS256, false},
		"P-384":             {with(published("k", all[ES256]), "crv", "P-384"), "", false},
		"X25519":            {with(published("k", all[EdDSA]), "crv", "X25519"), "", false},
		"symmetric":         {map[string]any{"kty": "oct", "k": b64([]byte(testSecret)), "alg": HS256}, "", true},
		"a private key":     {with(published("k", all[EdDSA]), "d", "AA"), "", true},
		"small RSA":         {published("k", smallRSA), "", true},
		"even exponent":     {with(published("k", all[RS256]), "e", "Ag"), "", true},
		"exponent 1":        {with(published("k", all[RS256]), "e", "AQ"), "", true},
		"padded":            {with(published("k", all[RS256]), "e", "AQAB=="), "", true},
		"no modulus":        {with(published("k", all[RS256]), "n", ""), "", true},
		"huge modulus":      {with(published("k", all[RS256]), "n", strings.Repeat("A", 2000)), "", true},
		"not on the curve":  {with(published("k", all[ES256]), "y", b64(make([]byte, 32))), "", true},
		"short coordinate":  {with(published("k", all[ES256]), "x", "AA"), "", true},
		"short Ed25519":     {with(published("k", all[EdDSA]), "x", "AA"), "", true},
		"kid too long":      {published(strings.Repeat("k", maxKeyID+1), all[EdDSA]), "", true},
		"kid a number":      {with(published("k", all[EdDSA]), "kid", 1), "", true},
		"unknown type":      {map[string]any{"kty": "AKP", "alg": "ML-DSA-44"}, "", false},
		"no kid, RSA":       {with(published("k", all[RS256]), "kid", ""), RS256, false},
		"no kid, P-256":     {with(published("k", all[ES256]), "kid", ""), ES256, false},
		"no kid, Ed25519":   {with(published("k", all[EdDSA]), "kid", ""), EdDSA, false},
		"RSA called EC":     {with(published("k", all[RS256]), "kty", "EC"), "", false},
		"Ed25519 as an RSA": {with(published("k", all[EdDSA]), "kty", "RSA"), "", true},
	} {
		document, _ := json.Marshal(map[string]any{"keys": []any{c.entry, published("other", all[ES256])}})
		keys, problems, err := parseJWKS(document)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if (len(problems) > 0) != c.problem || (len(keys) == 2) != (c.alg != "") || c.alg != "" && keys[0].Algorithm() != c.alg {
			t.Errorf("%s: %v, %v", name, keys, problems)
		}
		if strings.Contains(fmt.Sprint(problems), b64([]byte(testSecret))) {
			t.Errorf("%s: %v", name, problems)
		}
	}
}

// The example of RFC 7638, section 3.1.
func TestThumbprint(t *testing.T) {
	t.Parallel()
	const n = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw"
	k, err := (&jwk{Type: "RSA", N: n, E: "AQAB"}).key()
	if err != nil || k.ID() != "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs" {
		t.Errorf("%q, %v", k.ID(), err)
	}
}

// FuzzJWKS: whatever a document holds, its keys can be used for one algorithm
// each, have different ids, and are few.
func FuzzJWKS(f *testing.F) {
	all := pairs()
	for _, pair := range all {
		b, _ := json.Marshal(map[string]any{"keys": []any{published("k", pair)}})
		f.Add(b)
	}
	f.Add([]byte(`{"keys":[{"kty":"oct","k":"AA"}]}`))
	f.Add([]byte(`{"keys":[null,1,{}]}`))
	f.Fuzz(func(t *testing.T, document []byte) {
		keys, _, err := parseJWKS(document)
		if (err == nil) != (len(keys) > 0) || len(keys) > maxJWKSKeys {
			t.Fatalf("%v, %v", keys, err)
		}
		seen := map[string]bool{}
		for _, k := range keys {
			if k.alg == HS256 || methods[k.alg] == nil || k.Signs() || k.id == "" || seen[k.id] {
				t.Fatalf("%v", keys)
			}
			seen[k.id] = true
		}
	})
}
