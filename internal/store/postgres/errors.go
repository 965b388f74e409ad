package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ErrURL is returned for a database URL that cannot be used. It does not say
// more, because whatever is wrong in it might be the password.
var ErrURL = errors.New("postgres: the database URL cannot be parsed, " +
	"it has the form postgres://user:password@host:port/database")

// Error is a failed call. Its text does not contain the password; the error
// that it wraps might.
type Error struct {
	// What is what was tried.
	What string
	text string
	err  error
}

func (e *Error) Error() string { return "postgres: " + e.What + ": " + e.text }

// Unwrap returns what the driver said.
func (e *Error) Unwrap() error { return e.err }

// secret is a password that must not be seen.
type secret struct{ forms []string }

func newSecret(c *pgx.ConnConfig) secret {
	var s secret
	if p := c.Password; p != "" {
		s.forms = []string{p, url.QueryEscape(p), url.PathEscape(p), url.UserPassword("", p).String()[1:]}
	}
	return s
}

// wrap makes an [Error] of err; nil stays nil.
func (s secret) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	text := describe(err)
	for _, form := range s.forms {
		text = strings.ReplaceAll(text, form, "xxxxx")
	}
	return &Error{What: what, text: text, err: err}
}

// describe says in one line why a call failed. The driver tries a server by
// several ways and lists every failure; if the database itself has said no, that
// is what matters, and not that it also took no TLS.
func describe(err error) string {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return err.Error()
	}
	said := connect.Unwrap().Error()
	var refusal *pgconn.PgError
	if errors.As(err, &refusal) {
		said = refusal.Error()
	}
	return fmt.Sprintf("no connection as user %q to database %q: %s",
		connect.Config.User, connect.Config.Database, strings.ReplaceAll(said, "\n", "; "))
}

// late says whose time was over, if it was that of the call and not of its
// caller.
func (s *Store) late(caller, call context.Context, err error) error {
	// The driver's own timers for the same moment may be first.
	if err != nil && (call.Err() != nil || errors.Is(err, context.DeadlineExceeded)) && caller.Err() == nil {
		return fmt.Errorf("no answer within %v: %w", s.o.Timeout, err)
	}
	return err
}

// again reports whether a call that failed may work on another connection. All
// calls of this package can be repeated without harm.
func again(err error) bool {
	var own ownError
	if errors.As(err, &own) {
		return false
	}
	var e *pgconn.PgError
	if !errors.As(err, &e) {
		return true // the connection, not the database, said so
	}
	switch e.Code {
	case "40001", "40P01", // serialization failure, deadlock
		"57P01", "57P02", "57P03": // shutdown, crash, starting up
		return true
	}
	return false
}

// driverError is what the driver said while a call's statements ran.
type driverError struct{ error }

func (e driverError) Unwrap() error { return e.error }

func said(err error) error {
	if err == nil {
		return nil
	}
	return driverError{err}
}

// ownError is what the function of a call has decided by itself. No other
// connection would change that.
type ownError struct{ error }

func (e ownError) Unwrap() error { return e.error }

func judged(err error) error {
	var driver driverError
	if err == nil || errors.As(err, &driver) {
		return err
	}
	return ownError{err}
}
