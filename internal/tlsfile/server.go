package tlsfile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// every is how often the files are looked at.
	every = time.Second
	// maxFile bounds a file; a larger one is none of these.
	maxFile = 1 << 20 // bytes
)

// Files name the PEM files of a server. Cert and Key are required.
type Files struct {
	Cert, Key string
	// ClientCA holds the authorities whose client certificates are accepted; ""
	// asks clients for none.
	ClientCA string
}

// Server is a server's certificate and the authorities of its clients, as they
// are in the files now. It is safe for concurrent use.
type Server struct {
	files   Files
	log     *slog.Logger
	changed func()
	now     atomic.Pointer[loaded]

	mu  sync.Mutex // held while looking at the files
	bad trouble
}

// trouble is that the files were no good when they were last looked at.
type trouble struct {
	is   bool
	sums [3][sha256.Size]byte
	told bool // it has been logged
}

// loaded is what the files held.
type loaded struct {
	sums    [3][sha256.Size]byte
	config  map[bool]*tls.Config // by whether clients are asked for a certificate
	clients *x509.CertPool       // nil: they are asked for none
}

// Open reads the files. An error names the file that cannot be used and shows
// nothing of a key. A nil log tells nobody.
func Open(log *slog.Logger, files Files) (*Server, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	s := &Server{files: files, log: log}
	contents, err := s.read()
	if err != nil {
		return nil, err
	}
	l, err := s.load(contents)
	if err != nil {
		return nil, err
	}
	s.now.Store(l)
	s.warnOfExpiry(l)
	return s, nil
}

// Config is for a server whose clients may show a certificate, if there are
// authorities for those; protocols are offered in that order. Each handshake
// takes what the files held last.
func (s *Server) Config(protocols ...string) *tls.Config { return s.configFor(true, protocols) }

// ConfigWithoutClients is Config for a server that asks for no certificates.
func (s *Server) ConfigWithoutClients(protocols ...string) *tls.Config {
	return s.configFor(false, protocols)
}

func (s *Server) configFor(clients bool, protocols []string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := s.now.Load().config[clients].Clone()
			c.NextProtos = protocols
			return c, nil
		},
		// What some callers look for to see that there is a certificate.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return &s.now.Load().config[clients].Certificates[0], nil
		},
	}
}

// VerifyClient says whether a client's certificate, first in chain, is vouched
// for by the authorities as they are now. A connection may be older than they.
func (s *Server) VerifyClient(chain []*x509.Certificate) error {
	roots := s.now.Load().clients
	if roots == nil || len(chain) == 0 {
		return errors.New("no client certificates are accepted")
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	return err
}

// OnChange has f called when other files are in use, by who looks. It is set
// before [Server.Watch].
func (s *Server) OnChange(changed func()) { s.changed = changed }

// Watch follows changes of the files until the context ends.
func (s *Server) Watch(ctx context.Context) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			s.Look()
		}
	}
}

// Look takes over what has changed in the files. Files that are no good, or do
// not go together, leave everything as it was; that is logged if they are the
// same when they are looked at again, since they may be half written.
func (s *Server) Look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	contents, err := s.read()
	sums := sumsOf(contents)
	if err == nil && sums == s.now.Load().sums {
		s.bad = trouble{}
		return
	}
	var l *loaded
	if err == nil {
		l, err = s.load(contents)
	}
	if err != nil {
		again := s.bad.is && s.bad.sums == sums
		if again && !s.bad.told {
			s.log.Error("the TLS files are no good; those from before stay in use", "error", err)
		}
		s.bad = trouble{is: true, sums: sums, told: again}
		return
	}
	s.bad = trouble{}
	s.now.Store(l)
	s.log.Info("the TLS files have changed and are in use", "certificate", s.files.Cert, "expires", expiry(l))
	s.warnOfExpiry(l)
	if s.changed != nil {
		s.changed()
	}
}

// read reads all files. What cannot be read is empty in contents.
func (s *Server) read() (contents [3][]byte, err error) {
	var errs []error
	for i, path := range []string{s.files.Cert, s.files.Key, s.files.ClientCA} {
		if path == "" {
			continue
		}
		b, err := readFile(path)
		if err != nil {
			errs = append(errs, err)
		}
		contents[i] = b
	}
	return contents, errors.Join(errs...)
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(b) > maxFile {
		return nil, fmt.Errorf("%s: it is larger than %d KiB", path, maxFile>>10)
	}
	return b, err
}

func sumsOf(contents [3][]byte) (sums [3][sha256.Size]byte) {
	for i, b := range contents {
		sums[i] = sha256.Sum256(b)
	}
	return sums
}

func (s *Server) load(contents [3][]byte) (*loaded, error) {
	pair, err := tls.X509KeyPair(contents[0], contents[1])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", s.files.Cert, s.files.Key, err)
	}
	l := &loaded{sums: sumsOf(contents), config: map[bool]*tls.Config{}}
	if s.files.ClientCA != "" {
		if l.clients, err = authorities(contents[2]); err != nil {
			return nil, fmt.Errorf("%s: %w", s.files.ClientCA, err)
		}
	}
	for _, clients := range []bool{false, true} {
		c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
		if clients && l.clients != nil {
			c.ClientAuth, c.ClientCAs = tls.VerifyClientCertIfGiven, l.clients
			// A resumed session would be as good as its certificate was.
			c.SessionTicketsDisabled = true
		}
		l.config[clients] = c
	}
	return l, nil
}

// authorities reads a file of certificates, every one of which counts: a damaged
// one that were passed over would be missed only by its clients.
func authorities(content []byte) (*x509.CertPool, error) {
	pool, n := x509.NewCertPool(), 0
	rest := content
	for {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("it holds a PEM block %.32q; only certificates of authorities belong there", block.Type)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("its certificate %d: %w", n+1, err)
		}
		pool.AddCert(c)
		n++
	}
	switch {
	case bytes.Contains(rest, []byte("-----BEGIN")):
		return nil, fmt.Errorf("its PEM is damaged after %d certificates", n)
	case n == 0:
		return nil, errors.New("it holds no certificate in PEM")
	}
	return pool, nil
}

func expiry(l *loaded) string {
	return l.config[false].Certificates[0].Leaf.NotAfter.UTC().Format(time.RFC3339)
}

func (s *Server) warnOfExpiry(l *loaded) {
	if leaf := l.config[false].Certificates[0].Leaf; time.Now().After(leaf.NotAfter) {
		s.log.Warn("the TLS certificate has expired; clients will refuse it", "certificate", s.files.Cert, "expired", expiry(l))
	}
}
