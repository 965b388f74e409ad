package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// CertificateEntry says for which identity a client certificate stands.
type CertificateEntry struct {
	// One of the four names the certificate.
	Subject, DNS, URI, Email string

	Kind, Impl, Spec, User string
	Workspaces, Roles      []string
}

// texts are the fields that hold one text, by their names in the file.
func (e *CertificateEntry) texts() map[string]*string {
	return map[string]*string{
		"subject": &e.Subject, "dns": &e.DNS, "uri": &e.URI, "email": &e.Email,
		"kind": &e.Kind, "impl": &e.Impl, "spec": &e.Spec, "user": &e.User,
	}
}

// lists are those that hold several.
func (e *CertificateEntry) lists() map[string]*[]string {
	return map[string]*[]string{"workspaces": &e.Workspaces, "roles": &e.Roles}
}

// certificateFields is the order in which they are shown.
var certificateFields = []string{"subject", "dns", "uri", "email", "kind", "workspaces", "impl", "spec", "user", "roles"}

// parseCertificates reads the entries from YAML, or from text in YAML's flow
// form. Whether they make identities is for others to say.
func parseCertificates(raw any) (entries []CertificateEntry, err error) {
	const form = "{uri: 'spiffe://…', kind: agent, workspaces: [w], impl: i, spec: s}"
	err = eachMapping(raw, "entry", form, "["+form+"]", func(fields map[string]any) error {
		entry, err := parseCertificate(fields)
		entries = append(entries, entry)
		return err
	})
	return entries, err
}

func parseCertificate(fields map[string]any) (CertificateEntry, error) {
	var (
		e    CertificateEntry
		errs []error
	)
	texts, lists := e.texts(), e.lists()
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		var err error
		switch {
		case texts[name] != nil:
			*texts[name], err = scalar(fields[name])
		case lists[name] != nil:
			*lists[name], err = list(fields[name])
		default:
			err = errors.New("there is no such field")
			if near := suggest(name, certificateFields); near != "" {
				err = fmt.Errorf("there is no such field; did you mean %s?", near)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", printable(name), err))
		}
	}
	named := 0
	for _, text := range []string{e.Subject, e.DNS, e.URI, e.Email} {
		if text != "" {
			named++
		}
	}
	if len(errs) == 0 && named != 1 {
		errs = append(errs, errors.New("an entry has one of subject, dns, uri and email"))
	}
	return e, errors.Join(errs...)
}

// certificatesText is the entries in YAML's flow form, which can be set again.
func certificatesText(entries []CertificateEntry) string {
	if len(entries) == 0 {
		return ""
	}
	shown := make([]string, len(entries))
	for i := range entries {
		var parts []string
		texts, lists := entries[i].texts(), entries[i].lists()
		for _, name := range certificateFields {
			if text := texts[name]; text != nil && *text != "" {
				parts = append(parts, name+": "+strconv.Quote(*text))
			}
			if values := lists[name]; values != nil && len(*values) > 0 {
				quoted := make([]string, len(*values))
				for j, v := range *values {
					quoted[j] = strconv.Quote(v)
				}
				parts = append(parts, name+": ["+strings.Join(quoted, ", ")+"]")
			}
		}
		shown[i] = "{" + strings.Join(parts, ", ") + "}"
	}
	return "[" + strings.Join(shown, ", ") + "]"
}
