package main

import (
	"context"
	"crypto/x509"
	"errors"
	"log/slog"
	"net"
	"strings"

	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/ops"
	"github.com/aether-gateway/gateway/internal/tlsfile"
)

// credentials tell who connects.
type credentials struct {
	verifier *auth.Verifier
	files    *auth.FileKeys // nil: no key comes from a file
	// follow takes over what changes, until its context ends.
	follow []func(context.Context)
	// onChange has a function called when a key is no longer a good one.
	onChange []func(func())
	// check says whether any key is there; nil: there always is.
	check ops.Check
}

// openCredentials opens the keys of files and those that the configuration
// names. t is the server's TLS, nil without.
func openCredentials(cfg *config.Config, log *slog.Logger, t *tlsfile.Server, files []auth.KeyFile) (*credentials, error) {
	c := &credentials{}
	var sources auth.Sources
	if len(files) > 0 {
		var err error
		if c.files, err = auth.OpenKeys(log, files...); err != nil {
			return nil, err
		}
		sources = append(sources, c.files)
		c.follow = append(c.follow, c.files.Watch)
		c.onChange = append(c.onChange, c.files.OnChange)
	}
	if cfg.Auth.JWKSURL != "" {
		published, err := auth.NewJWKS(jwksOptions(cfg, log))
		if err != nil {
			return nil, config.Problems{{Key: "auth.jwks_url", Source: cfg.Source("auth.jwks_url"), Text: err.Error()}}
		}
		sources = append(sources, published)
		c.follow = append(c.follow, published.Watch)
		c.onChange = append(c.onChange, published.OnChange)
		if len(files) == 0 {
			c.check = func(context.Context) error { return published.Err() }
		}
	}
	var verify func([]*x509.Certificate) error
	if t != nil {
		verify = t.VerifyClient
		c.follow = append(c.follow, t.Watch)
		c.onChange = append(c.onChange, t.OnChange)
	}
	certificates, err := auth.NewCertificates(verify, certificateEntries(cfg)...)
	if err != nil {
		return nil, err
	}
	leeway := cfg.Auth.Leeway
	if leeway == 0 {
		leeway = -1 // none; 0 would be the default
	}
	c.verifier, err = auth.NewVerifier(auth.Options{
		Keys: sources, Certificates: certificates, Anonymous: cfg.Auth.Anonymous,
		Issuer: cfg.Auth.Issuer, Audience: cfg.Auth.Audience, Leeway: leeway,
	})
	return c, err
}

func jwksOptions(cfg *config.Config, log *slog.Logger) auth.JWKSOptions {
	return auth.JWKSOptions{
		URL: cfg.Auth.JWKSURL, Issuer: cfg.Auth.JWKSIssuer, Refresh: cfg.Auth.JWKSRefresh, MaxStale: cfg.Auth.JWKSMaxStale, Logger: log,
	}
}

// certificateEntries are the configured ones as package auth takes them.
func certificateEntries(cfg *config.Config) []auth.CertificateEntry {
	entries := make([]auth.CertificateEntry, len(cfg.Auth.Certificates))
	for i, e := range cfg.Auth.Certificates {
		entries[i] = auth.CertificateEntry{
			Subject: e.Subject, DNS: e.DNS, URI: e.URI, Email: e.Email,
			Claims: auth.Claims{Kind: e.Kind, Workspaces: e.Workspaces, Impl: e.Impl, Spec: e.Spec, User: e.User, Roles: e.Roles},
		}
	}
	return entries
}

// openTLS opens the configured certificate; nil without one.
func openTLS(cfg *config.Config, log *slog.Logger) (*tlsfile.Server, error) {
	if cfg.TLS.CertFile == "" {
		return nil, nil
	}
	t, err := tlsfile.Open(log, tlsfile.Files{Cert: cfg.TLS.CertFile, Key: cfg.TLS.KeyFile, ClientCA: cfg.TLS.ClientCA})
	if err != nil {
		return nil, config.Problems{{Key: "tls.cert_file", Source: cfg.Source("tls.cert_file"), Text: strings.ReplaceAll(err.Error(), "\n", "; ")}}
	}
	return t, nil
}

// failures slow addresses as configured; nil if they are not to be slowed.
func failures(cfg *config.Config) *auth.Failures {
	if cfg.Auth.FailureRate == 0 {
		return nil
	}
	return auth.NewFailures(auth.FailuresOptions{Rate: float64(cfg.Auth.FailureRate)})
}

// withCredentialProblems adds what is wrong with the configured keys, TLS files
// and certificates to the problems that loading has found.
func withCredentialProblems(cfg *config.Config, err error) error {
	var problems config.Problems
	if err != nil && !errors.As(err, &problems) {
		return err
	}
	add := func(key string, err error) {
		if err == nil {
			return
		}
		for text := range strings.SplitSeq(err.Error(), "\n") {
			problems = append(problems, config.Problem{Key: key, Source: cfg.Source(key), Text: text})
		}
	}
	if len(cfg.JWT.KeyFiles) > 0 {
		_, err := auth.LoadKeys(keyFiles(cfg)...)
		add("jwt.key_file", err)
	}
	if cfg.Auth.JWKSURL != "" {
		_, err := auth.NewJWKS(jwksOptions(cfg, nil))
		add("auth.jwks_url", err)
	}
	if cfg.TLS.CertFile != "" && cfg.TLS.KeyFile != "" {
		_, err := tlsfile.Open(nil, tlsfile.Files{Cert: cfg.TLS.CertFile, Key: cfg.TLS.KeyFile, ClientCA: cfg.TLS.ClientCA})
		add("tls.cert_file", err)
	}
	_, certificatesErr := auth.NewCertificates(nil, certificateEntries(cfg)...)
	add("auth.certificates", certificatesErr)
	if len(problems) == 0 {
		return nil
	}
	return problems
}

// warnOfOpenDoors says what an operator may not have meant.
func warnOfOpenDoors(cfg *config.Config, log *slog.Logger, grpc net.Addr, encrypted bool) {
	if tcp, ok := grpc.(*net.TCPAddr); ok && !encrypted && !tcp.IP.IsLoopback() {
		log.Warn("clients on other machines connect without TLS: whoever is on the way can read credentials and messages; set tls.cert_file and tls.key_file, or let a proxy with TLS stand before it",
			"grpc", grpc.String())
	}
	if cfg.Auth.Anonymous {
		log.Warn("auth.anonymous is on: agents, tasks and users on this machine, and whoever a proxy on it lets through, connect without a credential")
	}
}
