package orchestrator

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/aether-gateway/gateway/internal/address"
	"github.com/aether-gateway/gateway/internal/store"
)

// AuthToken is the launch parameter by which the worker gets its credential.
// Nobody else may set it.
const AuthToken = "auth_token"

// AnyProfile is what an orchestrator announces that starts everything.
const AnyProfile = "*"

// Bounds of an entry. All launch parameters of a start are one frame's.
const (
	maxParams     = 64
	maxParamName  = 128      // bytes
	maxParamValue = 4 << 10  // bytes
	maxParamBytes = 16 << 10 // of all
)

// ErrEntry is wrapped by the errors of what is wrong with an entry of the
// registry, or with what somebody wants to be started otherwise. Their texts are
// for those.
var ErrEntry = errors.New("this cannot be started so")

// checkEntry says what is wrong with an entry.
func checkEntry(i *store.Implementation) error {
	if err := address.ValidSegment(i.Name); err != nil {
		return fmt.Errorf("%w: implementation: %w", ErrEntry, err)
	}
	if i.Workspace != "" {
		if err := address.ValidWorkspace(i.Workspace); err != nil {
			return fmt.Errorf("%w: workspace: %w", ErrEntry, err)
		}
	}
	if err := address.ValidSegment(i.Profile); err != nil {
		return fmt.Errorf("%w: profile: %w", ErrEntry, err)
	}
	if len(i.Overridable) > maxParams {
		return fmt.Errorf("%w: %d launch parameters are overridable, %d may be", ErrEntry, len(i.Overridable), maxParams)
	}
	for _, name := range i.Overridable {
		if err := checkParamName(name); err != nil {
			return err
		}
	}
	return checkParams(i.Params)
}

func checkParams(params map[string]string) error {
	if len(params) > maxParams {
		return fmt.Errorf("%w: %d launch parameters, %d are allowed", ErrEntry, len(params), maxParams)
	}
	size := 0
	for name, value := range params {
		if err := checkParamName(name); err != nil {
			return err
		}
		if len(value) > maxParamValue || !utf8.ValidString(value) || strings.ContainsRune(value, 0) {
			return fmt.Errorf("%w: launch parameter %q needs a value of at most %d bytes of UTF-8", ErrEntry, name, maxParamValue)
		}
		size += len(name) + len(value)
	}
	if size > maxParamBytes {
		return fmt.Errorf("%w: the launch parameters have %d bytes, %d are allowed", ErrEntry, size, maxParamBytes)
	}
	return nil
}

func checkParamName(name string) error {
	switch {
	case name == "" || len(name) > maxParamName || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }):
		return fmt.Errorf("%w: the name of a launch parameter needs 1 to %d bytes of printable text without white space", ErrEntry, maxParamName)
	case strings.EqualFold(name, AuthToken):
		return fmt.Errorf("%w: launch parameter %s is reserved for the worker's credential", ErrEntry, AuthToken)
	}
	return nil
}

// CheckOverrides says whether a start may set these launch parameters. An error
// wraps [ErrEntry].
func CheckOverrides(i *store.Implementation, overrides map[string]string) error {
	if err := checkParams(overrides); err != nil {
		return err
	}
	for name := range overrides {
		if !slices.Contains(i.Overridable, name) {
			return fmt.Errorf("%w: launch parameter %q of implementation %q is not overridable", ErrEntry, name, i.Name)
		}
	}
	return nil
}

// hidden is shown in place of a secret.
const hidden = "(hidden)"

// secretWords make the value of a launch parameter a secret.
var secretWords = []string{"token", "secret", "password", "passwd", "credential", "apikey", "api_key", "api-key", "private_key", "private-key"}

// Shown returns launch parameters as they may be shown to people: without the
// values of those that are secrets by their name.
func Shown(params map[string]string) map[string]string {
	if len(params) == 0 {
		return nil
	}
	shown := make(map[string]string, len(params))
	for name, value := range params {
		lower := strings.ToLower(name)
		if slices.ContainsFunc(secretWords, func(w string) bool { return strings.Contains(lower, w) }) {
			value = hidden
		}
		shown[name] = value
	}
	return shown
}
