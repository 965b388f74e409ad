package rabbitmq

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/rabbitmq/rabbitmq-stream-go-client/pkg/stream"
)

// The kinds of an [Error]; test for them with errors.Is.
var (
	// ErrUnreachable: nothing answers there, or it does not speak the stream
	// protocol. Trying again can help.
	ErrUnreachable = errors.New("the broker cannot be reached")
	// ErrAdvertisedHost: the broker answers, but the address under which it
	// (or the stream's leader) advertises itself does not.
	ErrAdvertisedHost = errors.New("the broker's advertised address cannot be reached")
	// ErrAuthentication: user or password is wrong. Trying again is no use.
	ErrAuthentication = errors.New("the broker refuses user or password")
	// ErrAccess: the user may not use the virtual host or the stream. Trying
	// again is no use.
	ErrAccess = errors.New("the broker refuses access")
	// ErrTLS: the broker does not speak TLS there, or shows a certificate that is
	// not trusted. Trying again is no use.
	ErrTLS = errors.New("the broker cannot be trusted")
	// ErrStream: the stream does not exist or has no leader now.
	ErrStream = errors.New("the stream is not available")
	// ErrBroker: anything else that the broker or the client library reports.
	ErrBroker = errors.New("the broker fails")
	// ErrTooLarge: an entry is larger than [MaxEntry].
	ErrTooLarge = errors.New("rabbitmq: entry too large")
	// ErrConfig: the options cannot be used.
	ErrConfig = errors.New("rabbitmq: bad configuration")
)

// Error is a failure of something that was asked of a broker. It never holds
// credentials.
type Error struct {
	Op   string // what was tried
	Host string // host:port
	Kind error  // one of the Err variables
	Err  error  // the cause
}

// hints tell what to look at; they are for people who set up a broker.
var hints = map[error]string{
	ErrUnreachable: "check host and port (5552 by default) and that the plugin rabbitmq_stream is enabled",
	ErrAdvertisedHost: "set stream.advertised_host and stream.advertised_port on each node to what this machine can reach, " +
		"or give the URL of one node or load balancer to have every connection go there; " +
		"for a cluster without a load balancer give the URLs of all nodes",
	ErrAuthentication: "check user and password; guest is let in from the broker's own machine only",
	ErrTLS:            "check that this is the port for TLS, the name in the URL, and which authorities are trusted here",
	ErrAccess:         "check the name of the virtual host and the user's permissions on it",
}

func (e *Error) Error() string {
	s := fmt.Sprintf("rabbitmq: %s at %s: %v: %v", e.Op, e.Host, e.Kind, e.Err)
	if hint := hints[e.Kind]; hint != "" {
		s += " (" + hint + ")"
	}
	return s
}

// Unwrap returns kind and cause.
func (e *Error) Unwrap() []error { return []error{e.Kind, e.Err} }

// permanent reports whether trying again is no use.
func permanent(err error) bool {
	return errors.Is(err, ErrAuthentication) || errors.Is(err, ErrAccess) || errors.Is(err, ErrTLS) || errors.Is(err, ErrConfig)
}

// passing reports whether an error is one of a broker that has just started, or
// of a stream whose leader is being elected.
func passing(err error) bool {
	return errors.Is(err, stream.LeaderNotReady) ||
		errors.Is(err, stream.StreamNotAvailable) ||
		errors.Is(err, stream.StreamMetadataFailure) ||
		errors.Is(err, errNoAnswer)
}

// errNoAnswer is behind an error of the library that says that the broker did
// not answer a question; the library's own has no type.
var errNoAnswer = errors.New("no answer")

// explain makes an [Error] of what the library returned.
func explain(op, host string, err error) error {
	if err == nil {
		return nil
	}
	var known *Error
	if errors.As(err, &known) {
		return err
	}
	if strings.HasPrefix(err.Error(), "timeout ") {
		err = fmt.Errorf("%w (%w)", errNoAnswer, err)
	}
	return &Error{Op: op, Host: host, Kind: kindOf(err, host), Err: err}
}

func kindOf(err error, host string) error {
	var dial *net.OpError
	switch {
	case errors.Is(err, stream.AuthenticationFailure),
		errors.Is(err, stream.AuthenticationFailureLoopbackError):
		return ErrAuthentication
	case errors.Is(err, stream.VirtualHostAccessFailure),
		errors.Is(err, stream.CodeAccessRefused):
		return ErrAccess
	case errors.Is(err, stream.StreamDoesNotExist),
		errors.Is(err, stream.StreamNotAvailable),
		errors.Is(err, stream.StreamMetadataFailure),
		errors.Is(err, stream.LeaderNotReady):
		return ErrStream
	case errors.As(err, &dial):
		// The library dials the advertised address by itself.
		if dial.Op == "dial" && dial.Addr != nil && !sameHost(dial.Addr.String(), host) {
			return ErrAdvertisedHost
		}
		return ErrUnreachable
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, errNoAnswer):
		return ErrUnreachable
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return ErrUnreachable
	}
	return ErrBroker
}

// sameHost compares a dialled address with the configured one; names that
// cannot be compared count as the same.
func sameHost(addr, host string) bool {
	ah, ap, err := net.SplitHostPort(addr)
	if err != nil {
		return true
	}
	hh, hp, err := net.SplitHostPort(host)
	if err != nil {
		return true
	}
	if ap != hp {
		return false
	}
	return net.ParseIP(hh) == nil || ah == hh
}
