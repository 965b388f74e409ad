package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"
)

// TaskTokenPrefix begins every task token. No other credential begins with it.
const TaskTokenPrefix = "tt_"

var taskTokenEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// taskTokenBytes are drawn, not chosen, so that one round of a fast hash without
// salt is enough, and its hash can be looked for.
const taskTokenBytes = 32

// maxTaskToken bounds a task token before anything looks for it, in bytes.
const maxTaskToken = 256

// NewTaskToken draws the credential of a worker for one task. Only its hash is
// kept; the text is for the worker alone.
func NewTaskToken() (text, hash string) {
	b := make([]byte, taskTokenBytes)
	rand.Read(b) //nolint:errcheck // it never fails
	text = TaskTokenPrefix + taskTokenEncoding.EncodeToString(b)
	return text, taskTokenHash(text)
}

// TaskTokenHash is the hash by which a task token is kept; ok is false for what
// can be none.
func TaskTokenHash(text string) (hash string, ok bool) {
	rest, prefixed := strings.CutPrefix(text, TaskTokenPrefix)
	if !prefixed || rest == "" || len(rest) > maxTaskToken {
		return "", false
	}
	for i := range len(rest) {
		switch c := rest[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_':
		default:
			return "", false
		}
	}
	return taskTokenHash(text), true
}

func taskTokenHash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func isTaskToken(shown string) bool { return strings.HasPrefix(shown, TaskTokenPrefix) }

// TaskRun is a worker's run of a task: one attempt.
type TaskRun struct {
	// Task is empty for credentials that are no task token.
	Task    string
	Attempt int32
	// Specifier is the id that a non-unique task has already.
	Specifier string
}

// TaskTokens knows the task tokens that are valid now. It is safe for concurrent
// use.
type TaskTokens interface {
	// Find gives the run that a token with this hash is for, and what it proves,
	// which is one identity. One that is none, or is for a task or an attempt that
	// is over, is an error that wraps ErrTaskToken; that the tasks cannot be had at
	// present one that wraps ErrKeysAway.
	Find(ctx context.Context, hash string) (TaskRun, Claims, error)
}

// verifyTaskToken checks a task token. It has no times: it lasts as long as its
// task.
func (v *Verifier) verifyTaskToken(ctx context.Context, shown string) (*Credential, error) {
	hash, ok := TaskTokenHash(shown)
	if v.taskTokens == nil || !ok {
		return nil, ErrTaskToken
	}
	run, claims, err := v.taskTokens.Find(ctx, hash)
	if err != nil {
		return nil, err
	}
	if err := claims.check(); err != nil {
		return nil, err
	}
	c := claims.credential(TypeTaskToken)
	c.KeyID, c.Run = run.Task, run
	return c, nil
}

// WithTaskTokens is a Verifier like this one that also takes task tokens.
func (v *Verifier) WithTaskTokens(tokens TaskTokens) *Verifier {
	also := *v
	also.taskTokens = tokens
	return &also
}
