package rabbitmq

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
)

// untrusted returns an [ErrTLS] if an endpoint speaks no TLS or shows a
// certificate that is not trusted, and nil for everything else. The library says
// of both that a broker does not answer.
func (d *Driver) untrusted(ctx context.Context) error {
	if d.tls == nil {
		return nil
	}
	for _, e := range d.endpoints {
		if err := d.handshake(ctx, e); err != nil && isTLS(err) {
			return &Error{Op: "log in", Host: e.address(), Kind: ErrTLS, Err: err}
		}
	}
	return nil
}

func (d *Driver) handshake(ctx context.Context, e endpoint) error {
	ctx, cancel := context.WithTimeout(ctx, rpcTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", e.address())
	if err != nil {
		return err
	}
	defer conn.Close()
	config := d.tls.Clone()
	if config.ServerName == "" {
		config.ServerName = e.host
	}
	return tls.Client(conn, config).HandshakeContext(ctx)
}

// isTLS reports whether a handshake failed because of what the peer is, and not
// because it has gone.
func isTLS(err error) bool {
	var (
		record      tls.RecordHeaderError
		certificate *tls.CertificateVerificationError
		authority   x509.UnknownAuthorityError
		host        x509.HostnameError
		invalid     x509.CertificateInvalidError
	)
	return errors.As(err, &record) || errors.As(err, &certificate) || errors.As(err, &authority) || errors.As(err, &host) || errors.As(err, &invalid)
}
