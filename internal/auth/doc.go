// Package auth turns the credential that a connection presents into a
// principal: it verifies tokens, and binds the identity that an init frame
// claims to what the token proves.
//
// The way of a connection through it: [FromMetadataAndInit] finds the credential
// among the places where clients put one; [Verifier.Verify] checks the token and
// gives a [Credential]; [Credential.Bind] compares the whole claimed [Identity]
// with it and gives the acl.Principal, whose rights package acl knows. [Mint]
// and [Inspect] serve the command line.
//
// Tokens are JWTs with the claims of [Claims], signed by HS256. Each key is
// pinned to its algorithm, so that neither `none` nor a token of another
// algorithm ever meets a key that was not meant for it; a key file that could
// be a public key is never taken for a secret.
//
// Every refusal is one of the package's errors, to be tested with errors.Is;
// [Code] gives the gRPC status. No error, and no String method, repeats a token
// or a secret.
//
// The package imports addresses and acl, and nothing else of ours. It refuses to
// decide who may send where, and to keep state: sessions watch the expiry of
// the credentials that they were opened with.
package auth
