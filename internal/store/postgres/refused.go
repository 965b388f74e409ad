package postgres

import (
	"crypto/tls"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/aether-gateway/gateway/internal/store"
)

// Passes reports whether an error of this package may pass by waiting: the
// database does not answer, or says that it is not ready yet. A wrong password,
// a database that does not exist, tables of another version or a certificate
// that is not trusted do not.
func Passes(err error) bool {
	var failed *Error
	if !errors.As(err, &failed) {
		return false
	}
	var schema *store.SchemaError
	if errors.As(err, &schema) || errors.Is(err, ErrURL) || errors.Is(err, ErrNotAlone) {
		return false
	}
	var said *pgconn.PgError
	if errors.As(err, &said) {
		return passes(said.Code)
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return false
	}
	var connect *pgconn.ConnectError
	return !errors.As(err, &connect) || !encrypted(connect.Config) || !strings.Contains(err.Error(), "refused TLS")
}

// passes judges by the class of an error code: connection, resources, operator
// intervention (which is also starting up), and conflicts of transactions.
func passes(code string) bool {
	if len(code) < 2 {
		return false
	}
	switch code[:2] {
	case "08", "53", "57", "40":
		return true
	}
	return false
}

// encrypted reports whether every way to connect is with TLS.
func encrypted(c *pgconn.Config) bool {
	for _, f := range c.Fallbacks {
		if f.TLSConfig == nil {
			return false
		}
	}
	return c.TLSConfig != nil
}
