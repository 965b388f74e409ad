package client

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

// Code names what went wrong. Those that begin with ERR_ are the gateway's, and
// this package uses them too for what it refuses as the gateway would: a wrong
// option, a payload that is too large. Those that begin with CLIENT_ tell what
// only a client sees.
type Code string

// The codes that programs most often ask for; the gateway has more.
const (
	CodeInvalidTopic     Code = "ERR_INVALID_TOPIC"
	CodeInvalidArgument  Code = "ERR_INVALID_ARGUMENT"
	CodeInvalidPrincipal Code = "ERR_INVALID_PRINCIPAL"
	CodePermissionDenied Code = "ERR_PERMISSION_DENIED"
	CodeUnauthenticated  Code = "ERR_UNAUTHENTICATED"
	CodePayloadTooLarge  Code = "ERR_PAYLOAD_TOO_LARGE"
	CodeRateLimited      Code = "ERR_RATE_LIMITED"
	CodeWorkspaceLimited Code = "ERR_WORKSPACE_RATE_LIMITED"
	CodeQuotaExceeded    Code = "ERR_QUOTA_EXCEEDED"
	CodeUnavailable      Code = "ERR_UNAVAILABLE"
	CodePublishFailed    Code = "ERR_PUBLISH_FAILED"
	CodeInternal         Code = "ERR_INTERNAL"
	CodeNotFound         Code = "ERR_NOT_FOUND"
	CodeSwitchFailed     Code = "ERR_WORKSPACE_SWITCH_FAILED"

	codeKV             Code = "KV_ERROR"
	codeNotImplemented Code = "ERR_NOT_IMPLEMENTED"

	// CodeDuplicateIdentity: another session holds this identity.
	CodeDuplicateIdentity Code = "CLIENT_DUPLICATE_IDENTITY"
	// CodeDisconnected: an operator, or a later session that resumed this one,
	// ended the session for good.
	CodeDisconnected Code = "CLIENT_DISCONNECTED"
	// CodeTokenSource: the TokenSource returned an error, which is in the chain.
	CodeTokenSource Code = "CLIENT_TOKEN_SOURCE"
	// CodeConnection: the connection broke, or could not be made: nothing listens,
	// or what listens is no gateway. A gateway that answers that it cannot serve
	// now is CodeUnavailable.
	CodeConnection Code = "CLIENT_CONNECTION"
	// CodeNotSent: the call ended before the message was handed to the gateway.
	CodeNotSent Code = "CLIENT_NOT_SENT"
	// CodeUnknownOutcome: the call ended before the gateway answered; the message
	// may have been stored.
	CodeUnknownOutcome Code = "CLIENT_UNKNOWN_OUTCOME"
	// CodeGaveUp: the context of a call that waits ended, or was over before it:
	// Receive, Pending.Wait, Config, SendFrame or Close. The context's error is in
	// the chain. Connect and sends have the codes that say what is known instead.
	CodeGaveUp Code = "CLIENT_GAVE_UP"
	// CodeClosed: the client was closed by [Client.Close].
	CodeClosed Code = "CLIENT_CLOSED"
)

// ErrClosed is in the chain of errors of calls on a closed client.
var ErrClosed = errors.New("client is closed")

// Error is the one error type of this package. Get it with errors.As. It is
// read only.
type Error struct {
	Code    Code
	Message string // for people
	// Retryable: the same call may succeed later, unchanged. See [SafeToRetry]
	// for whether a send may be repeated.
	Retryable bool
	// RetryAfter is the gateway's hint how long to wait; 0 is no hint.
	RetryAfter time.Duration
	// Details are facts for programs, such as "limit", "size" and "topic".
	Details map[string]string
	// MessageID is that of the failed send; repeat the send with it, so that the
	// message is stored once.
	MessageID string
	// To is the address of the failed send.
	To string

	notStored  bool // a send: surely not stored
	idempotent bool // a send: a repeat with the same id is stored once
	terminal   bool // a connection: there is no point in trying again
	cause      error
}

// Error implements error.
func (e *Error) Error() string {
	s := "client: "
	if e.To != "" {
		s += "send to " + e.To + ": "
	}
	s += string(e.Code)
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Unwrap is the cause: a gRPC status error for connection errors, the context's
// error for calls that were given up, [ErrClosed] on a closed client, or nil.
func (e *Error) Unwrap() error { return e.cause }

// CodeOf is the code of the *Error in err's chain, or "".
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

// NotStored reports whether err is of a send that was surely not stored, so that
// repeating it, with any message id, cannot double it. It is false for errors of
// other calls, such as Connect.
func NotStored(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.notStored
}

// SafeToRetry reports whether it makes sense to send the same message again and
// it cannot be stored twice, provided that the repeat has the same address and
// payload and, by [WithMessageID], the MessageID of the error, and comes within
// minutes. It is false for refusals that a repeat would only meet again.
func SafeToRetry(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Retryable && (e.notStored || e.idempotent)
}

// IsPermission reports whether the gateway said that this principal may not do
// this: a send outside its rights, or a claim that its credential does not cover.
func IsPermission(err error) bool { return CodeOf(err) == CodePermissionDenied }

// IsUnauthenticated reports whether the credential is missing, wrong or expired.
func IsUnauthenticated(err error) bool { return CodeOf(err) == CodeUnauthenticated }

// IsDuplicateIdentity reports whether another session holds the identity.
func IsDuplicateIdentity(err error) bool { return CodeOf(err) == CodeDuplicateIdentity }

// unknownIfSeen are refusals after which a message may be stored all the same.
var unknownIfSeen = []Code{CodePublishFailed, CodeInternal}

// fromResponse is the gateway's refusal of one frame.
func fromResponse(r *aetherv1.ErrorResponse) *Error {
	e := &Error{
		Code: Code(r.GetCode()), Message: r.GetMessage(), Retryable: r.GetRetryable(),
		RetryAfter: milliseconds(r.GetRetryAfterMs()), Details: r.GetDetails(),
	}
	// A failure about keys has the code that says why among its details.
	if why := r.GetDetails()["code"]; e.Code == codeKV && why != "" {
		e.Code = Code(why)
	}
	e.notStored = !slices.Contains(unknownIfSeen, e.Code)
	return e
}

// fromStatus is the end of a stream, or a failed attempt to open one.
func fromStatus(err error) *Error {
	s := status.Convert(err)
	e := &Error{Code: CodeConnection, Message: s.Message(), Retryable: true, cause: err}
	switch s.Code() {
	case codes.Unauthenticated:
		e.Code, e.Retryable, e.terminal = CodeUnauthenticated, false, true
	case codes.PermissionDenied:
		e.Code, e.Retryable, e.terminal = CodePermissionDenied, false, true
	case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange:
		e.Code, e.Retryable, e.terminal = CodeInvalidArgument, false, true
		if text, ok := strings.CutPrefix(e.Message, string(CodeInvalidFilter)+": "); ok {
			e.Code, e.Message = CodeInvalidFilter, text
		}
	case codes.Unimplemented, codes.NotFound:
		e.Retryable, e.terminal = false, true
		e.Message = "no gateway at this address: " + s.Message()
		if text, ok := strings.CutPrefix(s.Message(), string(codeNotImplemented)+": "); ok {
			e.Code, e.Message = codeNotImplemented, text
		}
	case codes.Aborted: // superseded by a session that resumed this one (delivery rule L5)
		e.Code, e.Retryable, e.terminal = CodeDisconnected, false, true
	case codes.AlreadyExists:
		e.Code = CodeDuplicateIdentity
	case codes.Unavailable:
		if !transportFailed(e.Message) {
			e.Code = CodeUnavailable
		}
		if strings.Contains(e.Message, "first record does not look like a TLS handshake") {
			e.Message += " (the gateway speaks plaintext; Options.AllowPlaintext permits that)"
			e.terminal = true
		}
	case codes.ResourceExhausted:
		e.Code = CodeRateLimited
	}
	for _, d := range s.Details() {
		if r, ok := d.(*errdetails.RetryInfo); ok && r.GetRetryDelay().IsValid() {
			e.RetryAfter = max(r.GetRetryDelay().AsDuration(), 0)
		}
	}
	return e
}

// transportFailed reports whether gRPC itself found an Unavailable, so that no
// gateway said so. gRPC has no other mark for it than its texts.
func transportFailed(text string) bool {
	for _, prefix := range []string{"connection error: ", "error reading from server: ", "name resolver error: "} {
		if strings.HasPrefix(text, prefix) {
			return true
		}
	}
	return false
}

// broken is a connection that this side gave up.
func broken(format string, args ...any) *Error {
	return &Error{Code: CodeConnection, Message: fmt.Sprintf(format, args...), Retryable: true}
}

// refused is a send that this package turned down as the gateway would have.
func refused(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), notStored: true}
}

func closedError() *Error {
	return &Error{Code: CodeClosed, Message: ErrClosed.Error(), cause: ErrClosed}
}

// gaveUp is a call that ended with its context; what says what it waited for.
func gaveUp(what string, cause error) *Error {
	return &Error{Code: CodeGaveUp, Message: what + ": " + cause.Error(), Retryable: true, cause: cause}
}

func milliseconds(ms int64) time.Duration {
	if ms <= 0 {
		return 0
	}
	return time.Duration(min(ms, int64(1<<63-1)/int64(time.Millisecond))) * time.Millisecond
}
