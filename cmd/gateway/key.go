package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/config"
)

// What dev keeps in its data directory.
const (
	devKeyFile      = "aether-dev.hs256"
	devOperatorFile = "operator.jwt"
	devStateFile    = "aether.db"
	devAddressFile  = "address"
)

// keyFlags say which key signs or checks a credential.
type keyFlags struct {
	DataDir  string `placeholder:"DIR" help:"The data directory of gateway dev (default: .aether)."`
	KeyFile  string `placeholder:"FILE" help:"A key file instead: *.hs256, HS256:PATH, or PEM with a private key."`
	Issuer   string `placeholder:"ISS" help:"The iss claim (default: aether)."`
	Audience string `placeholder:"AUD" help:"The aud claim (default: aether)."`
}

// dataDir is the directory that the flags or the environment name.
func (f *keyFlags) dataDir(p *program) string {
	return first(f.DataDir, p.getenv("AETHER_DATA_DIR"), ".aether")
}

func (f *keyFlags) issuer(p *program) string {
	return first(f.Issuer, p.getenv("AETHER_AUTH_ISSUER"), auth.DefaultIssuer)
}

func (f *keyFlags) audience(p *program) string {
	return first(f.Audience, p.getenv("AETHER_AUTH_AUDIENCE"), auth.DefaultAudience)
}

// source says where load takes the key from.
func (f *keyFlags) source(p *program) string {
	switch {
	case f.KeyFile != "":
		return "the key of --key-file"
	case f.DataDir == "" && p.getenv("AETHER_JWT_KEY_FILE") != "":
		return "the key of AETHER_JWT_KEY_FILE"
	}
	return "the key in the data directory " + f.dataDir(p)
}

// load reads the key: of --key-file, of --data-dir, of AETHER_JWT_KEY_FILE,
// else of the default data directory.
func (f *keyFlags) load(p *program) (*auth.Keys, error) {
	if f.KeyFile != "" && f.DataDir != "" {
		return nil, usagef("--key-file and --data-dir name two keys; give one")
	}
	text := f.KeyFile
	if text == "" && f.DataDir == "" {
		text = p.getenv("AETHER_JWT_KEY_FILE")
	}
	if text != "" {
		parsed, err := config.ParseKeyFiles(text)
		if err != nil {
			return nil, fmt.Errorf("key file: %w", err)
		}
		files := make([]auth.KeyFile, len(parsed))
		for i, k := range parsed {
			files[i] = auth.KeyFile{Path: k.Path, Algorithm: k.Alg}
		}
		for _, path := range exposed(files) {
			fmt.Fprintf(p.stderr, "gateway: warning: %s\n", exposedText(path))
		}
		return auth.LoadKeys(files...)
	}
	dir := f.dataDir(p)
	keys, err := auth.LoadKeyFiles(filepath.Join(dir, devKeyFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no key in %s: start `gateway dev --data-dir %s` once, or name a key with --key-file or another directory with --data-dir", dir, dir)
	}
	return keys, err
}

// exposed lists the key files that others on this machine may read or write.
func exposed(files []auth.KeyFile) (paths []string) {
	for _, f := range files {
		if exposedFile(f.Path) {
			paths = append(paths, f.Path)
		}
	}
	return paths
}

func exposedText(path string) string {
	return fmt.Sprintf("every user of this machine can read or change the signing key %s: chmod 600 %s", path, path)
}

// devKey is the data directory's own key, which is made if there is none.
func devKey(dir string) (auth.KeyFile, error) {
	path := filepath.Join(dir, devKeyFile)
	if err := auth.CreateKeyFile(path); err != nil && !errors.Is(err, fs.ErrExist) {
		return auth.KeyFile{}, fmt.Errorf("making the signing key: %w", err)
	}
	return auth.KeyFile{Path: path}, nil
}

// readToken reads a file that holds a token and nothing else.
func readToken(path string) (string, error) {
	data, err := os.ReadFile(path)
	return strings.TrimSpace(string(data)), err
}

// writePrivate replaces a file as a whole, readable by its owner only.
func writePrivate(path, content string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if _, err = f.WriteString(content); err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}
