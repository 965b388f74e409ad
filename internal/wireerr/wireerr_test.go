package wireerr

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
)

var update = flag.Bool("update", false, "write docs/errors.md instead of comparing it")

// page renders the table as the documentation page.
func page() []byte {
	var b bytes.Buffer
	b.WriteString(`# Errors

<!-- Made from the table in internal/wireerr by "go generate ./internal/wireerr"; do not edit. -->

A request that is refused gets one ErrorResponse with its ` + "`request_id`" + `; the stream stays open unless the code is
terminal. The same conditions end a handshake or a unary call with the gRPC status of the table.

- *Retry*: the same request may succeed later, unchanged, not before ` + "`retry_after_ms`" + ` where it is given. Retry a send
  with the same ` + "`message_id`" + `: it is then stored once. The ` + "`retryable`" + ` field of a single error may differ from the
  table where the gateway knows more.
- *Ends*: the session cannot go on as it is; all other errors concern one request.
- *Fault*: who can change something: the client, the server, or an operator (policy).

| Code | Retry | Ends | Fault | gRPC status | Meaning |
| --- | --- | --- | --- | --- | --- |
`)
	word := map[bool]string{true: "yes", false: "no"}
	for _, e := range Table() {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s | %s |\n", e.Code, word[e.Retryable], word[e.Terminal], e.Fault, e.GRPC, e.Sentence)
	}
	b.WriteString(`
## How streams end

| gRPC status | When | What to do |
| --- | --- | --- |
| AlreadyExists, "DuplicateIdentityError" | Another session has the identity, or had it on a gateway that died less than 5 s ago. | End that one, name it in ` + "`resume_session_id`" + `, or try again after 5 s. |
| Aborted, "SUPERSEDED" | Another connection has resumed this session; a FORCE_DISCONNECT signal with that code came before. | Do not connect again. |
| Aborted, "an operator has ended the session" | An operator has ended this session; a FORCE_DISCONNECT signal with the code KICKED came before. | Do not connect again by yourself. |
| ResourceExhausted at connect | The gateway gets too many connections at once (` + "`admission.rate`" + `), whoever makes them. | Connect again after the delay in RetryInfo. |
| ResourceExhausted at connect, "as many sessions as it may have" | The workspace, or the credential or user, has too many sessions (` + "`limits.sessions_per_workspace`, `limits.sessions_per_credential`" + `). | End some; connect again after the delay in RetryInfo. |
| ResourceExhausted later | The client does not read its answers, or sent a frame above 4 MiB. | Read; send less. |
| Unavailable | The gateway starts, ends, or cannot reach what it needs; it could not renew its leases; or the connection broke. | Connect again, to another gateway if there is one, after the delay in RetryInfo or of the GRACEFUL_DISCONNECT signal. |
| PermissionDenied, "MEMBERSHIP_REVOKED" or "WORKSPACE_DELETED" in a FORCE_DISCONNECT signal before | An operator has removed the user from the workspace, or has deleted the workspace. | Do not connect again, or into another workspace. |
| FailedPrecondition at connect | A required extension is not supported; or the workspace does not exist, and naming it does not create it (` + "`workspaces.auto_create`" + `). | Correct the client; an operator creates the workspace. |
| Unauthenticated, "REVOKED" in a FORCE_DISCONNECT signal before | An operator has revoked the API key or the token. | Do not connect again with it; get another one. |
| Unauthenticated, PermissionDenied | The credential is refused or has expired; it does not cover what was claimed. | Get another credential. |
| InvalidArgument, DeadlineExceeded | The first frame was no init, a second one came, or none within 10 s. | Correct the client. |

A workspace that does not exist is ` + "`ERR_NOT_FOUND`" + ` for a send and a request, and FailedPrecondition at connect: where
` + "`workspaces.auto_create`" + ` is off an operator creates it.

## Codes of the Go SDK

An error of package ` + "`client`" + ` has one of the codes above, or one that tells what only a client sees:

| Code | Meaning |
| --- | --- |
| ` + "`CLIENT_DUPLICATE_IDENTITY`" + ` | Another session holds the identity (AlreadyExists at connect). |
| ` + "`CLIENT_DISCONNECTED`" + ` | An operator, or a later session that resumed this one, has ended the session for good. |
| ` + "`CLIENT_TOKEN_SOURCE`" + ` | The TokenSource returned an error, which is in the chain. |
| ` + "`CLIENT_CONNECTION`" + ` | The connection broke, or could not be made: nothing listens there, or what listens is no gateway. |
| ` + "`CLIENT_NOT_SENT`" + ` | The call ended before the message was handed to the gateway. |
| ` + "`CLIENT_UNKNOWN_OUTCOME`" + ` | The call ended before the gateway answered; the message may have been stored. Repeat it under its id. |
| ` + "`CLIENT_GAVE_UP`" + ` | The context of a call that waits ended; its error is in the chain. |
| ` + "`CLIENT_CLOSED`" + ` | The client was closed. |
| ` + "`CLIENT_NO_REPLY`" + ` | A Request ended before its answer came; the request itself may have been stored and processed. |
`)
	return b.Bytes()
}

func TestPage(t *testing.T) {
	t.Parallel()
	file := filepath.Join("..", "..", "docs", "errors.md")
	if *update {
		if err := os.WriteFile(file, page(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, page()) {
		t.Error("docs/errors.md does not match the table; run: go generate ./internal/wireerr")
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	shape := regexp.MustCompile(`^(ERR_[A-Z]+(_[A-Z]+)*|KV_ERROR)$`)
	seen := map[Code]bool{}
	for _, e := range Table() {
		switch {
		case !shape.MatchString(string(e.Code)):
			t.Errorf("%s: not a code", e.Code)
		case seen[e.Code]:
			t.Errorf("%s: twice", e.Code)
		case e.Fault.String() == "unknown":
			t.Errorf("%s: nobody's fault", e.Code)
		case e.GRPC == codes.OK || e.GRPC == codes.Unknown:
			t.Errorf("%s: gRPC status %s", e.Code, e.GRPC)
		case !strings.HasSuffix(e.Sentence, ".") || strings.Contains(e.Sentence, "|"):
			t.Errorf("%s: %q is no sentence for a table", e.Code, e.Sentence)
		case e.Retryable && e.Fault == Client:
			t.Errorf("%s: the client's fault, and yet to be retried unchanged", e.Code)
		case e.Retryable && e.Terminal:
			t.Errorf("%s: to be retried in a session that has ended", e.Code)
		}
		seen[e.Code] = true
		if got, ok := Lookup(e.Code); !ok || got != e {
			t.Errorf("%s: Lookup gives %+v, %v", e.Code, got, ok)
		}
	}
	if len(seen) != 22 {
		t.Errorf("%d codes, want 22", len(seen))
	}
	if _, ok := Lookup("ERR_SOMETHING"); ok {
		t.Error("an unknown code is found")
	}
}

func TestError(t *testing.T) {
	t.Parallel()
	cause := errors.New("secret cause")
	e := New(RateLimited, "over %d messages per second", 5).After(1500*time.Microsecond).With("limit", "5").Because(cause)
	if e.Code != RateLimited || !e.Retryable || e.RetryAfterMillis() != 2 || e.Details["limit"] != "5" || e.GRPC() != codes.ResourceExhausted {
		t.Errorf("%+v", e)
	}
	if !errors.Is(e, cause) || strings.Contains(e.Error(), "secret") {
		t.Errorf("cause: %v", e)
	}
	if got := From(fmt.Errorf("while sending: %w", e)); got != e {
		t.Errorf("From does not find the error: %v", got)
	}
	if e := New("ERR_NO_SUCH", "x"); e.Code != Internal {
		t.Errorf("unknown code: %v", e)
	}
}

func TestFromHidesForeignErrors(t *testing.T) {
	t.Parallel()
	if From(nil) != nil {
		t.Error("From(nil) is an error")
	}
	e := From(fmt.Errorf("password=hunter2: %w", io.ErrUnexpectedEOF))
	if e.Code != Internal || strings.Contains(e.Error(), "hunter2") || !errors.Is(e, io.ErrUnexpectedEOF) {
		t.Errorf("%v", e)
	}
}

func TestBounds(t *testing.T) {
	t.Parallel()
	for _, text := range []string{strings.Repeat("€", 1000), "x" + strings.Repeat("\U0001f600", 1000), strings.Repeat("\xff", 5000), "a\xc3"} {
		e := New(InvalidTopic, "%s", text).With(text, text)
		if len(e.Message) > maxMessage || !utf8.ValidString(e.Message) {
			t.Errorf("message of %d bytes, valid %v", len(e.Message), utf8.ValidString(e.Message))
		}
		for k, v := range e.Details {
			if len(k) > maxDetail || len(v) > maxDetail || !utf8.ValidString(k) || !utf8.ValidString(v) {
				t.Errorf("detail of %d and %d bytes", len(k), len(v))
			}
		}
	}
	if got := bound(strings.Repeat("€", 1000), maxMessage); !strings.HasSuffix(got, "€") || strings.Contains(got, "?") {
		t.Errorf("a character was cut in two: …%q", got[len(got)-6:])
	}
	e := New(Internal, "x")
	for i := range 100 {
		e.With(fmt.Sprint(i), "v")
	}
	if len(e.Details) != maxDetails {
		t.Errorf("%d details", len(e.Details))
	}
}
