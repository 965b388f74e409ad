package config

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	yamlv3 "go.yaml.in/yaml/v3"

	"github.com/aether-gateway/gateway/internal/wiring"
)

// assign parses raw, which is text from the environment or a flag or a value
// that YAML has typed, by the key's type, checks its range and stores it.
func assign(k *Key, field, raw any) error {
	switch to := field.(type) {
	case *[]string:
		items, err := list(raw)
		if err != nil {
			return err
		}
		for i, item := range items {
			if items[i], err = parseURL(item, k.Schemes); err != nil {
				return at(i, len(items), err)
			}
		}
		*to = items
		return nil
	case *[]KeyFile:
		items, err := list(raw)
		if err != nil {
			return err
		}
		files := make([]KeyFile, 0, len(items))
		for i, item := range items {
			f, err := parseKeyFile(item)
			if err != nil {
				return at(i, len(items), err)
			}
			files = append(files, f)
		}
		*to = files
		return nil
	case *[]Placement:
		rules, err := parsePlacement(raw)
		if err != nil {
			return err
		}
		*to = rules
		return nil
	case *[]CertificateEntry:
		entries, err := parseCertificates(raw)
		if err != nil {
			return err
		}
		*to = entries
		return nil
	case *[]wiring.Topic:
		topics, err := parseTopics(raw)
		*to = topics // as far as they could be read, to be shown
		return err
	case *[]wiring.Route:
		routes, err := parseRoutes(raw)
		*to = routes
		return err
	}
	text, err := scalar(raw)
	if err != nil {
		return err
	}
	switch to := field.(type) {
	case *string:
		v, err := parseText(k, text)
		if err == nil {
			*to = v
		}
		return err
	case *bool:
		v, err := parseBool(text)
		if err == nil {
			*to = v
		}
		return err
	case *int64:
		if k.Auto && text == auto {
			*to = -1
			return nil
		}
		v, err := parseInt(text)
		if err == nil {
			err = inRange(k, v, func(n int64) string { return strconv.FormatInt(n, 10) })
		}
		if err == nil {
			*to = v
		}
		return err
	case *time.Duration:
		v, err := ParseDuration(text)
		if err == nil {
			err = inRange(k, int64(v), func(n int64) string { return FormatDuration(time.Duration(n)) })
		}
		if err == nil {
			*to = v
		}
		return err
	case *Size:
		if k.Auto && text == auto {
			*to = -1
			return nil
		}
		v, err := ParseSize(text)
		if err == nil {
			err = inRange(k, int64(v), func(n int64) string { return Size(n).String() })
		}
		if err == nil {
			*to = v
		}
		return err
	}
	return fmt.Errorf("has a type that cannot be set (%T)", field)
}

// maxPath is the longest path that the system takes.
const maxPath = 4096

// auto is the word for a value that follows from others.
const auto = "auto"

func parseText(k *Key, text string) (string, error) {
	switch {
	case k.Type == TypeListen && k.Name == "ops_addr" && text == Off:
		return Off, nil
	case k.Type == TypeListen:
		return parseListen(text)
	case k.Type == TypeFile:
		if len(text) > maxPath || strings.ContainsFunc(text, unicode.IsControl) {
			return "", errors.New("is no path of a file")
		}
		return text, nil
	case k.Type == TypeURL && text == "":
		return "", nil
	case k.Type == TypeURL:
		return parseURL(text, k.Schemes)
	case len(k.Values) > 0 && !slices.Contains(k.Values, text):
		return "", fmt.Errorf("%q is not accepted; accepted are %s", text, strings.Join(k.Values, ", "))
	}
	if k.Max > 0 && (int64(len(text)) > k.Max || strings.ContainsFunc(text, unicode.IsControl)) {
		return "", fmt.Errorf("is longer than %d bytes or holds control characters", k.Max)
	}
	if k.Max == 0 && printable(text) != text {
		return "", errors.New("is longer than 80 bytes or holds control characters")
	}
	return text, nil
}

func inRange(k *Key, v int64, show func(int64) string) error {
	if v == 0 && k.ZeroOff || v >= k.Min && v <= k.Max {
		return nil
	}
	none := ""
	if k.ZeroOff {
		none = ", or 0 for no limit"
	}
	return fmt.Errorf("%s is out of range; accepted is %s to %s%s", show(v), show(k.Min), show(k.Max), none)
}

// scalar is the text of a single value.
func scalar(raw any) (string, error) {
	switch v := raw.(type) {
	case string:
		return v, nil
	case bool, int, int64, uint64:
		return fmt.Sprint(v), nil
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.FormatInt(int64(v), 10), nil
		}
		return strconv.FormatFloat(v, 'g', -1, 64), nil
	case []any:
		return "", errors.New("takes one value, not a list")
	case map[string]any:
		return "", errors.New("takes one value, not keys and values")
	}
	return "", errors.New("takes a plain value")
}

// list is a YAML list, or text with commas.
func list(raw any) ([]string, error) {
	var items []string
	switch v := raw.(type) {
	case []any:
		for i, item := range v {
			text, err := scalar(item)
			if err != nil {
				return nil, at(i, len(v), err)
			}
			items = append(items, text)
		}
	default:
		text, err := scalar(raw)
		if err != nil {
			return nil, err
		}
		if text == "" {
			return nil, nil
		}
		items = strings.Split(text, ",")
	}
	for i := range items {
		if items[i] = strings.TrimSpace(items[i]); items[i] == "" {
			return nil, at(i, len(items), errors.New("is empty"))
		}
	}
	return items, nil
}

// at says which item of a list an error is about.
func at(i, n int, err error) error {
	if n == 1 {
		return err
	}
	return fmt.Errorf("item %d of %d: %w", i+1, n, err)
}

func parseKeyFile(s string) (KeyFile, error) {
	if alg, path, ok := strings.Cut(s, ":"); ok && alg == "HS256" {
		if path == "" {
			return KeyFile{}, errors.New("HS256: names no file")
		}
		return KeyFile{Path: path, Alg: alg}, nil
	}
	return KeyFile{Path: s}, nil
}

// eachMapping gives take each mapping of a YAML list, or of text in YAML's flow
// form. what is one of them, forms how it may be written, example such a list.
// All that is wrong is reported, by item.
func eachMapping(raw any, what, forms, example string, take func(map[string]any) error) error {
	if text, ok := raw.(string); ok {
		raw = nil
		if err := yamlv3.Unmarshal([]byte(text), &raw); err != nil {
			return errors.New(yamlError(err))
		}
	}
	if raw == nil {
		return nil
	}
	items, ok := raw.([]any)
	if !ok {
		return fmt.Errorf("takes a list such as %s", example)
	}
	var errs []error
	for i, item := range items {
		fields, ok := item.(map[string]any)
		if !ok {
			errs = append(errs, at(i, len(items), fmt.Errorf("is no %s; write %s", what, forms)))
			continue
		}
		if err := take(fields); err != nil {
			errs = append(errs, at(i, len(items), err))
		}
	}
	return errors.Join(errs...)
}

// parsePlacement reads the rules of streams.placement.
func parsePlacement(raw any) (rules []Placement, err error) {
	const (
		forms   = "{prefix: …}, {prefix: …, workspace: …} or {address: …}"
		example = "[{prefix: metric}, {prefix: ag, workspace: big}]"
	)
	err = eachMapping(raw, "rule", forms, example, func(fields map[string]any) error {
		rule, err := parseRule(fields)
		rules = append(rules, rule)
		return err
	})
	return rules, err
}

// ParseKeyFiles reads a list of key files as jwt.key_file takes it.
func ParseKeyFiles(s string) ([]KeyFile, error) {
	var files []KeyFile
	err := assign(byName["jwt.key_file"], &files, s)
	return files, err
}
