// Package tlstest makes certificates for tests.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// life is how long a certificate is valid.
const life = time.Hour

// New makes an authority.
func New(tb testing.TB, name string) *Authority {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(tb, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-life), NotAfter: time.Now().Add(life),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	check(tb, err)
	c, err = x509.ParseCertificate(der)
	check(tb, err)
	return &Authority{tb, c, key}
}

// PEM is the authority's own certificate.
func (a *Authority) PEM() string { return block("CERTIFICATE", a.cert.Raw) }

// Pool trusts the authority.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Issue makes a certificate and its key, both PEM: for a server on 127.0.0.1 or
// for a client, which has the DNS name name.example as well.
func (a *Authority) Issue(name string, usage x509.ExtKeyUsage) (cert, key string) {
	a.tb.Helper()
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(a.tb, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-life), NotAfter: time.Now().Add(life),
		ExtKeyUsage: []x509.ExtKeyUsage{usage}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{name + ".example"},
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, &own.PublicKey, a.key)
	check(a.tb, err)
	private, err := x509.MarshalECPrivateKey(own)
	check(a.tb, err)
	return block("CERTIFICATE", der), block("EC PRIVATE KEY", private)
}

// Client is a client's certificate.
func (a *Authority) Client(name string) tls.Certificate {
	a.tb.Helper()
	cert, key := a.Issue(name, x509.ExtKeyUsageClientAuth)
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	check(a.tb, err)
	return pair
}

func block(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func check(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
