package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"time"
)

// maxCertificates bounds the table.
const maxCertificates = 1000

// CertificateEntry says which identity a client certificate proves. Exactly one
// of Subject, DNS, URI and Email is set; it is compared byte for byte, without
// patterns, with what the certificate names.
type CertificateEntry struct {
	// Subject is the whole distinguished name in the order of RFC 2253, such as
	// "CN=worker,O=Acme".
	Subject string
	// DNS, URI and Email are subject alternative names.
	DNS, URI, Email string
	// Claims are what a token would say: Kind, Workspaces, Impl, Spec, User and
	// Roles; the rest is ignored.
	Claims Claims
}

// Certificates is the table of client certificates. It is immutable and safe for
// concurrent use. Nil, or an empty one, accepts none.
type Certificates struct {
	verify func([]*x509.Certificate) error
	claims []Claims
	byName map[certificateName]int // into claims
}

// certificateName is a name of a certificate and what sort it is.
type certificateName struct{ sort, value string }

const (
	sortSubject = "subject"
	sortDNS     = "dns"
	sortURI     = "uri"
	sortEmail   = "email"
)

// NewCertificates makes the table. verify says whether a certificate, with those
// that vouch for it, is still good: since the handshake that has verified it, an
// authority may have been dropped. Nil asks nobody. An entry that makes no
// identity, or whose name another one has, is an error that wraps
// ErrCertificates.
func NewCertificates(verify func([]*x509.Certificate) error, entries ...CertificateEntry) (*Certificates, error) {
	if len(entries) > maxCertificates {
		return nil, fmt.Errorf("%w: the table holds at most %d entries", ErrCertificates, maxCertificates)
	}
	t := &Certificates{verify: verify, byName: make(map[certificateName]int, len(entries))}
	for i, e := range entries {
		name, err := e.name()
		if err == nil {
			err = e.Claims.check()
		}
		if _, twice := t.byName[name]; err == nil && twice {
			err = fmt.Errorf("another entry has the same %s", name.sort)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: entry %d: %w", ErrCertificates, i+1, err)
		}
		t.byName[name] = i
		t.claims = append(t.claims, e.Claims)
	}
	return t, nil
}

func (e *CertificateEntry) name() (certificateName, error) {
	var name certificateName
	for _, n := range []certificateName{{sortSubject, e.Subject}, {sortDNS, e.DNS}, {sortURI, e.URI}, {sortEmail, e.Email}} {
		if n.value == "" {
			continue
		}
		if name.value != "" {
			return name, fmt.Errorf("it names a certificate by %s and by %s; give one", name.sort, n.sort)
		}
		name = n
	}
	if name.value == "" {
		return name, fmt.Errorf("it names no certificate: give one of subject, dns, uri, email")
	}
	return name, nil
}

// credential is what a verified certificate proves. Of several entries that name
// it the first counts.
func (t *Certificates) credential(chain []*x509.Certificate, now time.Time) (*Credential, error) {
	cert := chain[0]
	found := -1
	try := func(sort, value string) {
		if i, ok := t.byName[certificateName{sort, value}]; ok && (found < 0 || i < found) {
			found = i
		}
	}
	if t != nil {
		try(sortSubject, cert.Subject.String())
		for _, n := range cert.DNSNames {
			try(sortDNS, n)
		}
		for _, u := range cert.URIs {
			try(sortURI, u.String())
		}
		for _, m := range cert.EmailAddresses {
			try(sortEmail, m)
		}
	}
	if found < 0 {
		return nil, ErrCertificate
	}
	// The handshake may have been long ago.
	switch {
	case !now.Before(cert.NotAfter):
		return nil, fmt.Errorf("%w: it has expired", ErrCertificate)
	case now.Before(cert.NotBefore):
		return nil, fmt.Errorf("%w: it is not valid yet", ErrCertificate)
	case t.verify != nil && t.verify(chain) != nil:
		return nil, fmt.Errorf("%w: its authority is not one of the gateway's", ErrCertificate)
	}
	claims := t.claims[found]
	claims.Subject, claims.ID = cert.Subject.String(), cert.SerialNumber.Text(16)
	claims.IssuedAt, claims.NotBefore, claims.ExpiresAt = cert.NotBefore, cert.NotBefore, cert.NotAfter
	c := claims.credential(TypeCertificate)
	sum := sha256.Sum256(cert.Raw)
	c.Fingerprint = hex.EncodeToString(sum[:])
	if t.verify != nil {
		c.good = func() bool { return t.verify(chain) == nil }
	}
	return c, nil
}
