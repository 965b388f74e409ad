package redis

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// faultError is an error that may be shown. refused is that of
// [presence.UnavailableError].
type faultError struct {
	text    string
	refused bool
}

func (e *faultError) Error() string { return "Redis: " + e.text }

// fault makes an error that may be shown of one of the client library.
func (p *Presence) fault(err error) error {
	text := err.Error()
	if password := p.client.Options().Password; password != "" {
		text = strings.ReplaceAll(text, password, "***")
	}
	if strings.HasPrefix(text, unauthenticated) {
		text = "NOAUTH Authentication required"
	}
	return &faultError{text: text, refused: refused(err)}
}

// unauthenticated is what Redis says instead of NOAUTH to a long command.
const unauthenticated = "ERR Protocol error: unauthenticated"

// refusals are how Redis begins what it will say again however long one waits.
// What is not here (it loads, it is a replica, its memory is full) may pass.
var refusals = []string{
	"WRONGPASS", "NOAUTH", "NOPERM", "DENIED", "ERR AUTH", "ERR Client sent AUTH", "ERR invalid password",
	unauthenticated, "ERR DB index", "ERR invalid DB index", "ERR SELECT is not allowed", "ERR unknown command",
}

func refused(err error) bool {
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		return true
	}
	var said goredis.Error
	if !errors.As(err, &said) {
		return false
	}
	for _, beginning := range refusals {
		if strings.HasPrefix(said.Error(), beginning) {
			return true
		}
	}
	return false
}

// unencrypted reports whether a server that should speak TLS answers without
// it: to a TLS client such a Redis says nothing at all.
func (p *Presence) unencrypted(ctx context.Context) bool {
	if p.client.Options().TLSConfig == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", p.client.Options().Addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(callTimeout)); err != nil {
		return false
	}
	if _, err := conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	var answer [5]byte // "+PONG", or an error such as "-NOAUTH"
	n, _ := conn.Read(answer[:])
	return bytes.HasPrefix(answer[:n], []byte("+")) || bytes.HasPrefix(answer[:n], []byte("-"))
}

var errUnencrypted = &faultError{text: "the server answers without TLS: write redis://, or the port on which it speaks TLS", refused: true}

// warnOfEviction tells the log if the server would throw leases away.
func (p *Presence) warnOfEviction(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	info, err := p.pulse.Info(ctx, "memory").Result()
	if err != nil {
		return // not every user may ask
	}
	_, policy, _ := strings.Cut(info, "maxmemory_policy:")
	policy, _, _ = strings.Cut(policy, "\r\n")
	if strings.HasPrefix(policy, "allkeys-") {
		p.log.Warn("presence: Redis may evict leases when its memory is full; set its maxmemory-policy to noeviction", "maxmemory-policy", policy)
	}
}
