package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/config"
)

const (
	// reachTimeout is how long a client command waits for a gateway, if
	// --timeout does not say.
	reachTimeout = 5 * time.Second
	// waitingAfter is when it says that it waits.
	waitingAfter = time.Second
	// attemptTimeout bounds one attempt of several gateways' clients, so that a
	// gateway that hangs leaves time for the next.
	attemptTimeout = 2 * time.Second
)

// target is what a client command connects to and how, for messages.
type target struct {
	addr string
	// from is the flag or the variable that gave the address, "" for a default.
	from string
	who  string
	// token is the flag or the variable that gave the credential; "" if it was
	// made with the key of keyFrom.
	token, keyFrom string
	// apiKey: that credential is an API key.
	apiKey bool
	// name is what to type to call this program.
	name string
}

// place is the address and, if somebody has chosen it, where.
func (t *target) place() string {
	if t.from == "" {
		return t.addr
	}
	return t.addr + " (" + t.from + ")"
}

// address is where the gateway is: as --addr or AETHER_ADDR say, or as a gateway
// on this machine is known to be.
func (f *clientFlags) address(p *program) (addr, from string, err error) {
	switch env := p.getenv("AETHER_ADDR"); {
	case f.Addr != "":
		addr, from = f.Addr, "--addr"
	case env != "":
		addr, from = env, "AETHER_ADDR"
	default:
		addr, from = f.localAddress(p)
		return addr, from, nil
	}
	for one := range strings.SplitSeq(addr, ",") {
		if one == "" {
			return addr, from, usagef("%s %s: an address is empty; separate several by commas, such as 10.0.0.1:50051,10.0.0.2:50051", from, addr)
		}
		if err := checkTarget(one, from); err != nil {
			return addr, from, err
		}
	}
	return addr, from, nil
}

// localAddress is that of the gateway of a data directory, or of one that the
// same environment configures.
func (f *clientFlags) localAddress(p *program) (addr, from string) {
	if f.DataDir == "" {
		host, port, err := net.SplitHostPort(p.getenv("AETHER_GRPC_ADDR"))
		if err == nil && port != "0" {
			if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
				host = "127.0.0.1"
			}
			return net.JoinHostPort(host, port), "AETHER_GRPC_ADDR"
		}
	}
	if a, err := os.ReadFile(filepath.Join(f.dataDir(p), devAddressFile)); err == nil && len(a) < 256 {
		return strings.TrimSpace(string(a)), ""
	}
	return defaultAddr, ""
}

// checkTarget refuses what gRPC would take for something else.
func checkTarget(addr, from string) error {
	if strings.Contains(addr, ":///") || strings.HasPrefix(addr, "unix:") || strings.HasPrefix(addr, "unix-abstract:") {
		return nil // a gRPC target
	}
	if scheme, rest, found := strings.Cut(addr, "://"); found {
		return usagef("%s %s: give it as HOST:PORT, without %s://, such as %s", from, addr, scheme, strings.TrimRight(rest, "/"))
	}
	if _, port, err := net.SplitHostPort(addr); err != nil || port == "" {
		return usagef("%s %s: give it as HOST:PORT, such as %s", from, addr, net.JoinHostPort(strings.Trim(strings.TrimSuffix(addr, ":"), "[]"), "50051"))
	}
	return nil
}

// patience is --timeout, or def if it was not given.
func (f *clientFlags) patience(def time.Duration) (time.Duration, error) {
	if f.Timeout == "" {
		return def, nil
	}
	d, err := config.ParseDuration(f.Timeout)
	if err != nil || d <= 0 {
		return 0, usagef("--timeout: %q is no positive duration", f.Timeout)
	}
	return d, nil
}

// reach connects, and says that it waits when that takes a while.
func (f *clientFlags) reach(ctx context.Context, p *program, t *target, o client.Options) (*client.Client, error) {
	patience, err := f.patience(reachTimeout)
	if err != nil {
		return nil, err
	}
	if n := len(o.Others); n > 0 {
		// The pauses between the attempts need a share, too.
		o.ConnectTimeout = min(attemptTimeout, patience/time.Duration(n+2))
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	connected := make(chan struct{})
	var teller sync.WaitGroup
	teller.Go(func() {
		wait := time.NewTimer(waitingAfter)
		defer wait.Stop()
		select {
		case <-wait.C:
			fmt.Fprintf(p.stderr, "waiting for the gateway at %s\n", t.place())
		case <-connected:
		case <-limited.Done():
		}
	})
	c, err := client.Connect(limited, o)
	close(connected)
	teller.Wait()
	switch {
	case err == nil:
		return c, nil
	case ctx.Err() != nil && errors.Is(context.Cause(ctx), errInterrupted):
		return nil, errInterrupted
	}
	return nil, t.explain(err)
}

// explain adds to what the client says what to do about it.
func (t *target) explain(err error) error {
	todo := ""
	switch code := client.CodeOf(err); {
	case client.IsUnauthenticated(err):
		todo = t.credentialRefused(err.Error())
	case client.IsDuplicateIdentity(err):
		todo = "end the other session, or connect under another name (for a user, another window); if its gateway has just died, try again in 5 s"
	case strings.Contains(err.Error(), "server preface"):
		todo = "if the gateway at " + t.place() + " serves TLS, name the authority of its certificate with --ca or AETHER_CA"
	case unreachable(err, code):
		todo = "is a gateway running at " + t.place() + "? " + t.howToStart() + ", or name another with --addr or AETHER_ADDR"
	case code == client.CodeUnavailable:
		todo = "there is a gateway at " + t.place() + ", but it cannot serve now: its log, and /readyz on its operators' port, say why"
	}
	if todo == "" {
		return err
	}
	return fmt.Errorf("%w\n%s", err, todo)
}

// howToStart says how to get a gateway there: an address that the environment
// of serve has given is not where dev would be.
func (t *target) howToStart() string {
	switch t.from {
	case "--addr", "AETHER_ADDR":
		return "start it"
	case "AETHER_GRPC_ADDR":
		return "start it with `" + t.name + " serve`"
	}
	return "start one with `" + t.name + " dev`"
}

// explainClaim is explain for a connection: what is refused there is the
// identity, not a message.
func (t *target) explainClaim(err error) error {
	switch {
	case !client.IsPermission(err):
		return err
	case strings.Contains(err.Error(), "no member"):
		return fmt.Errorf("%w\nan operator keeps the user out, whatever the credential says: `%s workspace members WORKSPACE` shows it, and --unrule USER takes it back", err, t.name)
	}
	return fmt.Errorf("%w\nthe credential must cover %s; %s", err, t.who, t.otherCredential())
}

// credentialRefused says what to do about a credential that is no good, by what
// the gateway says of it.
func (t *target) credentialRefused(why string) string {
	switch {
	case t.apiKey:
		return "the API key of " + t.token + " has been revoked, has expired, or was never made: `" + t.name + " key list` shows an operator which are good, and `" +
			t.name + " key create` makes another" + t.unset()
	case strings.Contains(why, "revoked") && t.token == "":
		return "an operator has just taken back what is made with " + t.keyFrom + " for " + t.who + "; a credential that is made from the next second on counts"
	case strings.Contains(why, "revoked"):
		return "an operator has taken the credential of " + t.token + " back: `" + t.name + " token create` makes another" + t.unset()
	case t.token == certificateFlag:
		return "the certificate of " + certificateFlag + " stands in for a credential only if auth.certificates of the gateway at " + t.place() + " has an entry for it"
	case t.token == "":
		return "the credential was made with " + t.keyFrom + ", which is not a key of the gateway at " + t.place() +
			": name its key with --key-file or --data-dir, or give a credential with --token or AETHER_TOKEN"
	case strings.Contains(why, "expired"):
		return "the credential of " + t.token + " has expired: make a new one with `" + t.name + " token create`" + t.unset()
	}
	return "the credential of " + t.token + " must be signed with a key of the gateway at " + t.place() + ": `" + t.name +
		" token create` with its --data-dir or --key-file makes one" + t.unset()
}

// otherCredential says how to get one that covers the principal.
func (t *target) otherCredential() string {
	if t.token == "" {
		return "it was made with " + t.keyFrom
	}
	return "this one came from " + t.token + ": make another with `" + t.name + " token create`" + t.unset()
}

// unset is the usual way out of a variable that was set for another command.
func (t *target) unset() string {
	if t.token != "AETHER_TOKEN" {
		return ""
	}
	return ", or `unset AETHER_TOKEN` to have one made with " + t.keyFrom
}

// unreachable reports whether nothing answered, as opposed to a gateway that
// said no.
func unreachable(err error, code client.Code) bool {
	if code == client.CodeConnection {
		return true
	}
	text := err.Error()
	return code == client.CodeUnavailable && (strings.Contains(text, "connection error:") || strings.Contains(text, "name resolver error"))
}
