package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/config"
)

type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Report everything that is wrong. Exits 0 if nothing is."`
	Print configPrintCmd `cmd:"" help:"Print every value and where it came from, without passwords."`
}

// configFlags say which configuration is meant.
type configFlags struct {
	Mode   string `default:"serve" enum:"serve,dev" help:"Check for this mode: serve or dev."`
	Config string `placeholder:"FILE" help:"A YAML file, as the argument is."`
	File   string `arg:"" optional:"" help:"A YAML file."`
}

func (f *configFlags) load(p *program) (*config.Config, error) {
	file := f.File
	switch {
	case file == "":
		file = f.Config
	case f.Config != "" && f.Config != file:
		return &config.Config{}, config.Problems{{Text: "two files are named; name one"}}
	}
	return config.Load(config.Options{Mode: config.Mode(f.Mode), File: file, Environ: p.environ})
}

type configCheckCmd struct {
	configFlags
	Output string `default:"text" enum:"text,json" help:"text or json."`
}

func (c *configCheckCmd) Run(p *program) error {
	cfg, err := c.load(p)
	err = withURLProblems(cfg, withCredentialProblems(cfg, err))
	var problems config.Problems
	if err != nil && !errors.As(err, &problems) {
		return err
	}
	err = nil
	notes := cfg.Notes()
	for _, path := range exposed(keyFiles(cfg)) {
		notes = append(notes, config.Problem{Key: "jwt.key_file", Source: cfg.Source("jwt.key_file"), Text: exposedText(path)})
	}
	notes = append(notes, exposedPasswords(cfg)...)
	if c.Output == "json" {
		err = writeJSON(p, struct {
			OK       bool            `json:"ok"`
			Problems config.Problems `json:"problems"`
			Notes    config.Problems `json:"notes"`
		}{len(problems) == 0, orEmpty(problems), orEmpty(notes)})
	} else {
		for _, n := range notes {
			fmt.Fprintf(p.stdout, "note: %s\n", n)
		}
		for _, problem := range problems {
			fmt.Fprintf(p.stdout, "problem: %s\n", problem)
		}
		if len(problems) == 0 {
			_, err = fmt.Fprintf(p.stdout, "ok: the configuration can be used for `gateway %s`\n", c.Mode)
		}
	}
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return silentError{}
	}
	return nil
}

func orEmpty(ps config.Problems) config.Problems {
	if ps == nil {
		return config.Problems{}
	}
	return ps
}

type configPrintCmd struct {
	configFlags
	Output string `default:"text" enum:"text,json" help:"text (YAML with comments) or json."`
}

func (c *configPrintCmd) Run(p *program) error {
	cfg, loadErr := c.load(p)
	entries := cfg.Entries()
	var err error
	if c.Output == "json" {
		err = writeJSON(p, entries)
	} else {
		width := 0
		for _, e := range entries {
			width = max(width, len(e.Key)+len(yamlScalar(e.Value)))
		}
		width = min(width, 60)
		for _, e := range entries {
			value := yamlScalar(e.Value)
			pad := max(width-len(e.Key)-len(value), 0)
			if _, err = fmt.Fprintf(p.stdout, "%s: %s%s  # %s\n", e.Key, value, strings.Repeat(" ", pad), e.Source); err != nil {
				break
			}
		}
	}
	if err != nil {
		return err
	}
	return loadErr
}

// yamlScalar quotes what YAML would otherwise read as something else.
func yamlScalar(s string) string {
	plain := s != "" && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._:/-@%", r)
	}) < 0 && s[0] != '-' && s[0] != ':' && s[0] != '@' && s[0] != '%' && !strings.HasSuffix(s, ":")
	if plain {
		return s
	}
	quoted, err := json.Marshal(s)
	if err != nil {
		return `""`
	}
	return string(quoted)
}

// keyFiles are the configured key files as package auth takes them.
func keyFiles(cfg *config.Config) []auth.KeyFile {
	files := make([]auth.KeyFile, len(cfg.JWT.KeyFiles))
	for i, f := range cfg.JWT.KeyFiles {
		files[i] = auth.KeyFile{Path: f.Path, Algorithm: f.Alg}
	}
	return files
}

func writeJSON(p *program, v any) error {
	enc := json.NewEncoder(p.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}
