// Package auth turns the credential that a connection presents into a
// principal: it verifies tokens, API keys and certificates, and binds the
// identity that an init frame claims to what they prove.
//
// The way of a connection through it: [Verifier.Authenticate] finds the
// credential among the places where clients put one, checks it, which gives a
// [Credential], and compares the whole claimed [Identity] with it, which gives
// the acl.Principal, whose rights package acl knows. [Mint] and [Inspect] serve
// the command line.
//
// Tokens are JWTs with the claims of [Claims]. Their keys come from a
// [KeySource]: a fixed set ([Keys]), files that may change ([FileKeys]), or
// another server ([JWKS]). Each key is pinned to its algorithm, so that neither
// `none` nor a token of another algorithm ever meets a key that was not meant
// for it; a key file that could be a public key is never taken for a secret. The
// store of API keys is behind [APIKeys]; [Certificates] is the table of client
// certificates. [Failures] slows addresses whose credentials fail.
//
// Every refusal is one of the package's errors, to be tested with errors.Is;
// [Code] gives the gRPC status. No error, and no String method, repeats a token
// or a secret.
//
// The package imports addresses and acl, and nothing else of ours. It refuses to
// decide who may send where, and to know who is connected: sessions watch the
// expiry of the credentials that they were opened with.
package auth
