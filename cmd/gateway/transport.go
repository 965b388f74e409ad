package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// certificateFlag is where the credential of a command comes from that connects
// by a certificate.
const certificateFlag = "--cert"

// tlsFlags say how a command encrypts.
type tlsFlags struct {
	CA        string `name:"ca" placeholder:"FILE" help:"The authority of the gateway's TLS certificate: PEM (default: AETHER_CA, else the system's)."`
	Cert      string `placeholder:"FILE" help:"A client certificate, PEM, to connect with instead of a token (default: AETHER_CERT)."`
	Key       string `placeholder:"FILE" help:"The private key of --cert (default: AETHER_KEY)."`
	Plaintext bool   `help:"Send the credential unencrypted to a host that is not this one."`
}

// transport sets up TLS as the flags and the environment say, and reports
// whether the client shows a certificate of its own. Without any of them it is
// nil, and the client chooses: plain text to this machine, TLS to others.
func (f *tlsFlags) transport(p *program) (config *tls.Config, own bool, err error) {
	ca := first(f.CA, p.getenv("AETHER_CA"))
	cert, key := first(f.Cert, p.getenv("AETHER_CERT")), first(f.Key, p.getenv("AETHER_KEY"))
	switch {
	case (cert == "") != (key == ""):
		return nil, false, usagef("--cert and --key go together: a certificate and its private key")
	case ca == "" && cert == "":
		return nil, false, nil
	case f.Plaintext:
		return nil, false, usagef("--plaintext sends everything unencrypted; leave it out, or --ca and --cert")
	}
	config = &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		content, err := os.ReadFile(ca)
		if err != nil {
			return nil, false, fmt.Errorf("--ca: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(content) {
			return nil, false, fmt.Errorf("--ca: %s holds no certificate in PEM", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, false, fmt.Errorf("--cert and --key: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, cert != "", nil
}
