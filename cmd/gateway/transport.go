package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/aether-gateway/gateway/client"
)

// certificateFlag is where the credential of a command comes from that connects
// by a certificate.
const certificateFlag = "--cert"

// transport sets up TLS as the flags and the environment say, and reports
// whether the client shows a certificate of its own. Without any of them the
// client chooses: plain text to this machine, TLS to others.
func (f *clientFlags) transport(p *program, o *client.Options) (own bool, err error) {
	ca := first(f.CA, p.getenv("AETHER_CA"))
	cert, key := first(f.Cert, p.getenv("AETHER_CERT")), first(f.Key, p.getenv("AETHER_KEY"))
	switch {
	case (cert == "") != (key == ""):
		return false, usagef("--cert and --key go together: a certificate and its private key")
	case ca == "" && cert == "":
		return false, nil
	case f.Plaintext:
		return false, usagef("--plaintext sends everything unencrypted; leave it out, or --ca and --cert")
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		content, err := os.ReadFile(ca)
		if err != nil {
			return false, fmt.Errorf("--ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(content) {
			return false, fmt.Errorf("--ca: %s holds no certificate in PEM", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return false, fmt.Errorf("--cert and --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	o.TLS = config
	return cert != "", nil
}
