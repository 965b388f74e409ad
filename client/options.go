package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// The defaults of Options.
const (
	DefaultMaxUnacked     = 256
	DefaultSharedBuffer   = 1024
	DefaultDedupeWindow   = 65_536
	DefaultMaxPending     = 1024
	DefaultPendingBytes   = 16 << 20
	DefaultConnectTimeout = 10 * time.Second
	DefaultMinBackoff     = 200 * time.Millisecond
	DefaultMaxBackoff     = 10 * time.Second
)

const (
	// The gateway remembers this many ids of one sender and address; more sends
	// under way could not all be repeated safely.
	maxMaxPending = 4096
	maxConcurrent = 1024
	maxMaxUnacked = 1 << 20
	// heldFor is how long an identity may stay taken after a break, because the
	// gateway has not yet noticed that the old connection is dead.
	heldFor = time.Minute
)

// A TokenSource returns a JWT that is valid for a while to come. It is asked each
// time a session begins, which is also after the gateway has ended one because
// its token had expired, and while a session lasts when the gateway announces
// that its token is about to expire. It is never asked concurrently.
//
// A source that keeps tokens must not return one that has expired or is about
// to: after three refused ones in a row the client gives up.
type TokenSource func(ctx context.Context) (string, error)

// A Handler processes one message. Returning nil acknowledges it; an error or a
// panic is a [Message.Nack], which brings it back only a few times, within
// seconds; an error wrapped by [Drop] does not. So a handler that must not lose
// the message while something that it needs is away tries again itself until ctx
// ends, and then returns the error. The context ends when the client is closed
// for good, not when the connection breaks: what is then unfinished comes again
// to the next session.
type Handler func(ctx context.Context, m *Message) error

// Options say where to connect, as whom, and how messages are handled. Addr and
// Identity are required; the zero value of every other field is a good choice.
type Options struct {
	// Addr is the gateway's gRPC address, "host:port", without a scheme such as
	// "http://". A gRPC target such as "dns:///host:port" or "unix:///path" works
	// as well.
	Addr string
	// Others are further gateways of the same deployment, each like Addr. After a
	// lost connection, or an attempt that failed, the next one is tried, in the
	// order Addr, Others, and again from the beginning: the session goes on at
	// whichever it is.
	Others []string
	// Identity is who to be.
	Identity Identity
	// Workspace is where a user starts; others leave it empty. When it is empty a
	// user starts in the only workspace of the credential, or in none.
	Workspace string

	// At most one credential: a JWT, a source of JWTs, an API key, or the token
	// that came with a task assignment. When it expires the gateway ends the
	// session; only with a TokenSource the client then goes on, with a new one. A
	// TaskToken is good until its task ends.
	Token       string
	TokenSource TokenSource
	APIKey      string
	TaskToken   string

	// TLS is the configuration for an encrypted connection. Nil means plaintext to
	// loopback addresses and Unix sockets and TLS with the system's roots to all
	// others.
	TLS *tls.Config
	// AllowPlaintext permits sending the credential and all messages unencrypted
	// to a host that is not this one.
	AllowPlaintext bool
	// DialOptions are added to those of this package, for interceptors or an own
	// dialer. Transport credentials given here replace TLS and AllowPlaintext.
	DialOptions []grpc.DialOption

	// Handler gets the messages. If it is nil, take them by Receive or Messages.
	Handler Handler
	// Concurrency is the number of handlers that run at once. 0 and 1 mean one, in
	// the order of arrival. With more, the messages of one sender still follow
	// each other; those of different senders do not wait for each other.
	Concurrency int
	// ExplicitAcks: a handler that returns nil has not acknowledged; it, or
	// whoever it gave the message to, calls Ack or Nack. An error still asks for
	// the message again.
	ExplicitAcks bool
	// MaxUnacked is how many messages the gateway may have under way to this
	// client unacknowledged; 0 means DefaultMaxUnacked. It bounds the memory for
	// messages to this principal.
	MaxUnacked int
	// SharedBuffer is how many broadcasts and other shared messages, which are not
	// acknowledged, wait for the handler; 0 means DefaultSharedBuffer. When it is
	// full the oldest are dropped and a Gap is reported.
	SharedBuffer int
	// Filters say which broadcasts, events and metrics are wanted; without any, all
	// are. [Client.SetFilters] changes them.
	Filters []Filter
	// Echo: also deliver this client's own broadcasts.
	Echo bool
	// DedupeWindow is how many processed messages are remembered to recognise a
	// repeat, once for acknowledged and once for shared ones, at some 90 bytes
	// each. After an unclean end of a gateway or a connection, what was
	// acknowledged in about the last second may come again: so it should exceed
	// two seconds of this client's traffic. 0 means DefaultDedupeWindow, or more
	// where MaxUnacked asks for it; negative means none.
	DedupeWindow int

	// MaxPending and PendingBytes bound what was sent and not yet answered, in
	// messages (at most 4096) and bytes of payload and metadata. Sends wait while
	// either is reached. 0 means DefaultMaxPending and DefaultPendingBytes.
	MaxPending   int
	PendingBytes int

	// ConnectTimeout bounds one attempt to connect, and, when the context of
	// Connect has no deadline, the whole of the first one with its repeats; 0
	// means DefaultConnectTimeout.
	ConnectTimeout time.Duration
	// WaitForIdentity is how long Connect waits for an identity that another
	// session holds; 0 fails at once. A process that is started again after a crash
	// wants some: until the gateway has noticed the crash, it is its own former
	// session that holds the identity. It prolongs the time that Connect has if
	// its context has no deadline. A client that has been connected waits a minute
	// for its identity, or this time if it is longer.
	WaitForIdentity time.Duration
	// MinBackoff and MaxBackoff bound the pause before the next attempt, which is
	// random between 0 and a limit that doubles with each failure; 0 means
	// DefaultMinBackoff and DefaultMaxBackoff.
	MinBackoff, MaxBackoff time.Duration

	// OnNotice is told of what is not a message: connections made and lost, gaps,
	// refused Posts, frames of other kinds. It is called by one goroutine, one
	// notice after the other. It may use the client, but while it runs at most
	// 1024 notices wait; then the oldest are dropped and counted.
	OnNotice func(Notice)
	// Logger gets what an operator of this program should see: breaks, attempts,
	// failed handlers. Nil means no logging. No payload and no credential is
	// logged.
	Logger *slog.Logger
	// Name is shown to operators of the gateway beside the SDK's name, for example
	// "billing-agent/1.4".
	Name string
}

// fill checks the options, all at once, and puts the defaults in.
func (o *Options) fill() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	number := func(name string, v *int, def, most int) {
		switch {
		case *v < 0 || *v > most:
			bad("%s is %d, not in 0..%d", name, *v, most)
		case *v == 0:
			*v = def
		}
	}
	duration := func(name string, v *time.Duration, def time.Duration) {
		switch {
		case *v < 0:
			bad("%s is negative", name)
		case *v == 0:
			*v = def
		}
	}
	for _, addr := range o.addrs() {
		if err := checkAddr(addr, len(o.DialOptions) > 0); err != nil {
			errs = append(errs, err)
		}
	}
	if err := o.Identity.check(); err != nil {
		errs = append(errs, err)
	}
	given := 0
	for _, set := range []bool{o.Token != "", o.TokenSource != nil, o.APIKey != "", o.TaskToken != ""} {
		if set {
			given++
		}
	}
	if given > 1 {
		bad("more than one of Token, TokenSource, APIKey and TaskToken is set")
	}
	for name, s := range map[string]string{
		"Workspace": o.Workspace, "Token": o.Token, "APIKey": o.APIKey, "TaskToken": o.TaskToken, "Name": o.Name,
	} {
		if !utf8.ValidString(s) {
			bad("%s is not valid UTF-8", name)
		}
	}
	if o.Workspace != "" && o.Identity.kind != kindUser && o.Identity.kind != kindNone {
		bad("Workspace is for users; the workspace of %s is part of its Identity", o.Identity)
	}
	if err := checkFilters(o.Filters); err != nil {
		errs = append(errs, err)
	}
	if o.ExplicitAcks && o.Handler == nil {
		bad("ExplicitAcks needs a Handler; without one acks are always explicit")
	}
	number("Concurrency", &o.Concurrency, 1, maxConcurrent)
	number("MaxUnacked", &o.MaxUnacked, DefaultMaxUnacked, maxMaxUnacked)
	number("SharedBuffer", &o.SharedBuffer, DefaultSharedBuffer, 1<<20)
	number("MaxPending", &o.MaxPending, DefaultMaxPending, maxMaxPending)
	number("PendingBytes", &o.PendingBytes, DefaultPendingBytes, 1<<31-1)
	duration("ConnectTimeout", &o.ConnectTimeout, DefaultConnectTimeout)
	duration("MinBackoff", &o.MinBackoff, DefaultMinBackoff)
	duration("MaxBackoff", &o.MaxBackoff, max(DefaultMaxBackoff, o.MinBackoff))
	duration("WaitForIdentity", &o.WaitForIdentity, 0)
	if o.MinBackoff > o.MaxBackoff {
		bad("MinBackoff is above MaxBackoff")
	}
	if o.DedupeWindow == 0 {
		// What may come again after a break: the unacknowledged ones, and those
		// that were acknowledged beyond a hole (delivery rule S6).
		o.DedupeWindow = max(DefaultDedupeWindow, 17*o.MaxUnacked)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if len(errs) > 0 {
		return &Error{Code: CodeInvalidArgument, Message: errors.Join(errs...).Error(), terminal: true}
	}
	return nil
}

// addrs are all gateways, in the order in which they are tried.
func (o *Options) addrs() []string { return append([]string{o.Addr}, o.Others...) }

// dialOptions are those of a connection to addr.
func (o *Options) dialOptions(addr string) []grpc.DialOption {
	own := []grpc.DialOption{
		grpc.WithTransportCredentials(Transport(addr, o.TLS, o.AllowPlaintext)),
		grpc.WithUserAgent("aether-go"),
		grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxFrame), grpc.MaxCallSendMsgSize(maxFrame)),
	}
	return append(own, o.DialOptions...)
}

// Transport is what a connection to addr is made with, as [Options] say: config
// if it is not nil, else plaintext to this machine, or to anybody if that is
// allowed, and TLS with the system's roots to all others. It is for programs that
// call other services of a gateway.
func Transport(addr string, config *tls.Config, allowPlaintext bool) credentials.TransportCredentials {
	switch {
	case config != nil:
		return credentials.NewTLS(config)
	case allowPlaintext || loopback(addr):
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
}

// loopback reports whether a target surely stays on this machine.
func loopback(target string) bool {
	if strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:") {
		return true
	}
	for _, scheme := range []string{"dns:///", "passthrough:///"} {
		target = strings.TrimPrefix(target, scheme)
	}
	host, _, err := net.SplitHostPort(target)
	if err != nil {
		host = target
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return ip != nil && ip.IsLoopback()
}
