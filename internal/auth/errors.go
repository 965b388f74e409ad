package auth

import (
	"errors"

	"google.golang.org/grpc/codes"
)

// refusal is a kind of error: what the sentinels are.
type refusal struct {
	code codes.Code
	text string
}

func (r *refusal) Error() string { return r.text }

// The refusals. Errors of this package wrap one of them, often with a detail
// that says what to do.
var (
	ErrNoCredential           error = &refusal{codes.Unauthenticated, "no credential was presented"}
	ErrConflictingCredentials error = &refusal{codes.InvalidArgument, "the connection presents several credentials that disagree"}
	ErrUnsupportedCredential  error = &refusal{codes.Unauthenticated, "credentials of this type are not supported"}

	ErrTokenTooLarge  error = &refusal{codes.Unauthenticated, "the token is larger than 8 KiB"}
	ErrMalformedToken error = &refusal{codes.Unauthenticated, "the token is not a well-formed JWT"}
	ErrAlgorithm      error = &refusal{codes.Unauthenticated, "the token's algorithm is not accepted"}
	ErrUnknownKey     error = &refusal{codes.Unauthenticated, "the token is signed with a key that the gateway does not have"}
	ErrSignature      error = &refusal{codes.Unauthenticated, "the token's signature does not fit any key"}
	ErrNoExpiry       error = &refusal{codes.Unauthenticated, "the token has no expiry"}
	ErrExpired        error = &refusal{codes.Unauthenticated, "the token has expired"}
	ErrNotYetValid    error = &refusal{codes.Unauthenticated, "the token is not valid yet"}
	ErrIssuer         error = &refusal{codes.Unauthenticated, "the token is from another issuer"}
	ErrAudience       error = &refusal{codes.Unauthenticated, "the token is for another audience"}
	ErrClaims         error = &refusal{codes.Unauthenticated, "the token's claims make no usable identity"}

	// ErrRevoked: it was good until it was taken back.
	ErrRevoked error = &refusal{codes.Unauthenticated, "the credential was revoked"}
	// ErrAPIKey: it is not known, or revoked. Which of the two is not told.
	ErrAPIKey error = &refusal{codes.Unauthenticated, "the API key is not accepted"}
	// ErrTaskToken: it is none, or its task or that attempt is over. Which is not
	// told.
	ErrTaskToken error = &refusal{codes.Unauthenticated, "the task token is not accepted: it is good for one identity, from the assignment of its task until that ends"}
	// ErrCertificate: nothing but a certificate is there, and it stands for nobody.
	ErrCertificate error = &refusal{codes.Unauthenticated, "the client certificate is not accepted as a credential, and no other was presented"}
	// ErrKeysAway: whether the credential is good cannot be told now; try again.
	ErrKeysAway error = &refusal{codes.Unavailable, "the keys for this credential cannot be had at present; connect again"}

	// ErrNotCovered: the token is good, but the connection claims more than it
	// proves.
	ErrNotCovered error = &refusal{codes.PermissionDenied, "the credential does not cover this identity"}
	// ErrInvalidIdentity: the claimed identity is none, whoever claims it.
	ErrInvalidIdentity error = &refusal{codes.InvalidArgument, "the identity is not valid"}

	// ErrKeyFile: a key file that cannot be used. It is the operator's business
	// and never reaches a client.
	ErrKeyFile error = &refusal{codes.FailedPrecondition, "the key file cannot be used"}
	// ErrKeyAlgorithm: a key of an algorithm that is not supported.
	ErrKeyAlgorithm error = &refusal{codes.FailedPrecondition, "the key is of no supported kind: RSA (RS256), P-256 (ES256), Ed25519 (EdDSA), or an HS256 secret"}
	// ErrCannotSign: only public keys are there.
	ErrCannotSign error = &refusal{codes.FailedPrecondition, "a public key cannot sign; name the private key's file"}
	// ErrCertificates: the table of client certificates cannot be used.
	ErrCertificates error = &refusal{codes.FailedPrecondition, "the entry for client certificates cannot be used"}
)

// Code is the gRPC status for an error of this package: OK for nil, Internal
// for an error of another origin.
func Code(err error) codes.Code {
	if err == nil {
		return codes.OK
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		return r.code
	}
	return codes.Internal
}
