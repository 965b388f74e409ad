package auth

import (
	"context"
	"testing"
)

// BenchmarkVerify is what a connection costs, and what a bad credential costs.
func BenchmarkVerify(b *testing.B) {
	keys := []Key{testKey(b, "k", testSecret)}
	for _, alg := range []string{RS256, ES256, EdDSA} {
		keys = append(keys, must[Key](b)(NewSigner("k", pairs()[alg])))
	}
	for _, k := range keys {
		set := must[*Keys](b)(NewKeys(k))
		v, _ := setup(b, func(o *Options) { o.Keys = set })
		good := mint(b, k, agentClaims())
		bad := good[:len(good)-8] + "AAAAAAAA"
		for name, token := range map[string]string{"good": good, "bad": bad} {
			b.Run(k.Algorithm()+"/"+name, func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := v.Verify(context.Background(), token); (err == nil) != (name == "good") {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
