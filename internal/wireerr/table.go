package wireerr

import (
	"slices"

	"google.golang.org/grpc/codes"
)

// Code is an error code as it stands in ErrorResponse.code.
type Code string

// The codes.
const (
	InvalidTopic          Code = "ERR_INVALID_TOPIC"
	PermissionDenied      Code = "ERR_PERMISSION_DENIED"
	PayloadTooLarge       Code = "ERR_PAYLOAD_TOO_LARGE"
	RateLimited           Code = "ERR_RATE_LIMITED"
	WorkspaceRateLimited  Code = "ERR_WORKSPACE_RATE_LIMITED"
	QuotaExceeded         Code = "ERR_QUOTA_EXCEEDED"
	PublishFailed         Code = "ERR_PUBLISH_FAILED"
	Unavailable           Code = "ERR_UNAVAILABLE"
	InvalidPrincipal      Code = "ERR_INVALID_PRINCIPAL"
	WorkspaceSwitchFailed Code = "ERR_WORKSPACE_SWITCH_FAILED"
	NotImplemented        Code = "ERR_NOT_IMPLEMENTED"
	InvalidArgument       Code = "ERR_INVALID_ARGUMENT"
	InvalidFilter         Code = "ERR_INVALID_FILTER"
	MetricInvalid         Code = "ERR_METRIC_INVALID"
	MetricEmpty           Code = "ERR_METRIC_EMPTY"
	MetricInvalidEntry    Code = "ERR_METRIC_INVALID_ENTRY"
	TaskCreateFailed      Code = "ERR_TASK_CREATE_FAILED"
	NotFound              Code = "ERR_NOT_FOUND"
	GrantInvalid          Code = "ERR_GRANT_INVALID"
	Unauthenticated       Code = "ERR_UNAUTHENTICATED"
	Internal              Code = "ERR_INTERNAL"
	KVError               Code = "KV_ERROR"
)

// Fault says who has to change something for the request to succeed.
type Fault uint8

const (
	// Client: the request itself is at fault.
	Client Fault = iota + 1
	// Server: the gateway or what it depends on is at fault.
	Server
	// Policy: the request is well-formed, but a rule or a limit stands against
	// it, which an operator could change.
	Policy
)

// String is the word used in the documentation.
func (f Fault) String() string {
	switch f {
	case Client:
		return "client"
	case Server:
		return "server"
	case Policy:
		return "policy"
	}
	return "unknown"
}

// Entry is what is true of a code wherever it is used.
type Entry struct {
	Code Code
	// Retryable: the same request may succeed later, unchanged. A send is
	// retried with the same message_id, so that it is stored once.
	Retryable bool
	// Terminal: the session cannot go on as it is, and the stream ends unless
	// the client mends it. All other errors concern one request only.
	Terminal bool
	Fault    Fault
	// GRPC is the status with which a stream ends, or a unary call fails, for
	// the same reason.
	GRPC codes.Code
	// Sentence says what happened and what to do, for the documentation.
	Sentence string
}

var table = []Entry{
	{
		InvalidTopic, false, false, Client, codes.InvalidArgument,
		"The target address, or the subject, does not follow its grammar; correct it.",
	},
	{
		PermissionDenied, false, false, Policy, codes.PermissionDenied,
		"The sender may not do this; nothing was stored or started, and the stream stays open.",
	},
	{
		PayloadTooLarge, false, false, Client, codes.InvalidArgument,
		"The payload is larger than `max_payload_bytes` of the ConnectionAck; `details` has `limit` and `size`.",
	},
	{
		RateLimited, true, false, Policy, codes.ResourceExhausted,
		"The sender is over its own limit of messages, bytes or sends in flight, or, at connect, too many come at once; wait `retry_after_ms`.",
	},
	{
		WorkspaceRateLimited, true, false, Policy, codes.ResourceExhausted,
		"The workspace as a whole is over its limit; wait `retry_after_ms`.",
	},
	{
		QuotaExceeded, false, false, Policy, codes.ResourceExhausted,
		"The workspace has no room left for stored messages; it gets some when retention removes old ones or an operator raises the quota.",
	},
	{
		PublishFailed, true, false, Server, codes.Unavailable,
		"It is not known whether the message was stored; send it again with the same message_id, which stores it at most once.",
	},
	{
		Unavailable, true, false, Server, codes.Unavailable,
		"Something that the gateway needs is away; the request had no effect, and a send was surely not stored.",
	},
	{
		InvalidPrincipal, false, false, Client, codes.FailedPrecondition,
		"This kind of principal cannot make this request.",
	},
	{
		WorkspaceSwitchFailed, true, false, Server, codes.Unavailable,
		"The new workspace's topics could not be joined; the user is still wholly in the old workspace.",
	},
	{
		NotImplemented, false, false, Client, codes.Unimplemented,
		"The gateway does not serve this request; the stream stays open.",
	},
	{
		InvalidArgument, false, false, Client, codes.InvalidArgument,
		"A field of the request has a value that is not allowed; the message names it.",
	},
	{
		InvalidFilter, false, false, Client, codes.InvalidArgument,
		"A subject filter does not follow the grammar, or there are too many of them; none of the request was registered.",
	},
	{
		MetricInvalid, false, false, Client, codes.InvalidArgument,
		"The payload of a METRIC message is not a Metric, or it has too many entries or metadata keys.",
	},
	{
		MetricEmpty, false, false, Client, codes.InvalidArgument,
		"The Metric has no entries.",
	},
	{
		MetricInvalidEntry, false, false, Client, codes.InvalidArgument,
		"An entry of the Metric has no name, or its quantity is not a finite number.",
	},
	{
		TaskCreateFailed, false, false, Server, codes.Aborted,
		"The task was not created; the message says why.",
	},
	{
		NotFound, false, false, Client, codes.NotFound,
		"What the request names does not exist, or not for this principal.",
	},
	{
		GrantInvalid, false, false, Policy, codes.PermissionDenied,
		"The authority grant that the request names does not exist, has ended, or does not cover the request.",
	},
	{
		Unauthenticated, false, true, Client, codes.Unauthenticated,
		"The credential is missing, invalid or expired; present another one. The answer to a failed Reauthenticate leaves the session as it was until its old credential expires.",
	},
	{
		Internal, false, false, Server, codes.Internal,
		"The gateway failed in a way that it did not foresee; its log says more.",
	},
	{
		KVError, false, false, Client, codes.FailedPrecondition,
		"The key-value operation failed; the message says why, and `details` has the `code` of the reason. It is retryable where that is.",
	},
}

var byCode = func() map[Code]*Entry {
	m := make(map[Code]*Entry, len(table))
	for i := range table {
		m[table[i].Code] = &table[i]
	}
	return m
}()

// Table lists every code in the order of the documentation. The caller owns the
// slice.
func Table() []Entry { return slices.Clone(table) }

// Lookup finds the entry of a code.
func Lookup(c Code) (Entry, bool) {
	e, ok := byCode[c]
	if !ok {
		return Entry{}, false
	}
	return *e, true
}
