package config

import (
	"fmt"
	"strings"

	"github.com/aether-gateway/gateway/internal/wiring"
)

// maxStreams bounds the connections that a gateway keeps to the log.
const maxStreams = 256

// check finds what is wrong between keys. found are the problems so far: a key
// that is among them is not judged again.
func (c *Config) check(found Problems) Problems {
	var ps Problems
	bad := found.about
	add := func(key, format string, args ...any) {
		ps = append(ps, Problem{Key: key, Source: c.sources[key], Text: fmt.Sprintf(format, args...)})
	}
	for i := range table {
		k := &table[i]
		if k.Required == c.Mode && c.Mode != "" && !bad(k.Name) && c.isEmpty(k) {
			add(k.Name, "must be set for `gateway %s`: in the file, or by %s", c.Mode, k.Env())
		}
	}
	if c.Mode == Serve && len(c.JWT.KeyFiles) == 0 && c.Auth.JWKSURL == "" && !bad("jwt.key_file") && !bad("auth.jwks_url") {
		add("jwt.key_file", "must be set for `gateway %s`: in the file, or by %s; auth.jwks_url would do as well", c.Mode, EnvName("jwt.key_file"))
	}
	c.checkTLS(add)
	if c.GRPCAddr != "" && c.GRPCAddr == c.HTTPAddr && !strings.HasSuffix(c.GRPCAddr, ":0") {
		add("http_addr", "is the same as grpc_addr (%s); each needs a port of its own", c.GRPCAddr)
	}
	if c.OpsAddr != Off && !strings.HasSuffix(c.OpsAddr, ":0") && (c.OpsAddr == c.GRPCAddr || c.OpsAddr == c.HTTPAddr) {
		add("ops_addr", "is the same as another listen address (%s)", c.OpsAddr)
	}
	if !bad("session.max_unacked") && !bad("session.max_unacked_limit") && c.Session.MaxUnacked > c.Session.MaxUnackedLimit {
		add("session.max_unacked", "is %d, above session.max_unacked_limit (%d)", c.Session.MaxUnacked, c.Session.MaxUnackedLimit)
	}
	if c.Mode == Serve && !bad("streams.retention.max_bytes") && !bad("streams.segment_bytes") &&
		c.Streams.Retention.MaxBytes > 0 && c.Streams.SegmentBytes > c.Streams.Retention.MaxBytes {
		add("streams.segment_bytes", "is %s, above streams.retention.max_bytes (%s): nothing would ever be removed", c.Streams.SegmentBytes, c.Streams.Retention.MaxBytes)
	}
	if !bad("session.queue_bytes") && !bad("max_payload") && c.Session.QueueBytes < c.MaxPayload+4*kib && c.IsSet("session.queue_bytes") {
		add("session.queue_bytes", "is %s; the largest message (max_payload %s) must fit", c.Session.QueueBytes, c.MaxPayload)
	}
	if c.Auth.Issuer == "" && !bad("auth.issuer") {
		add("auth.issuer", "must not be empty")
	}
	if c.Auth.Audience == "" && !bad("auth.audience") {
		add("auth.audience", "must not be empty")
	}
	if c.Mode == Dev && c.DataDir == "" && !bad("data_dir") {
		add("data_dir", "must not be empty")
	}
	if n := c.Streams.Partitions + int64(len(c.Streams.Placement)); n > maxStreams && !bad("streams.partitions") {
		add("streams.placement", "makes %d streams with streams.partitions; at most %d can be read at once", n, maxStreams)
	}
	for i, rule := range c.Streams.Placement {
		for j, earlier := range c.Streams.Placement[:i] {
			if earlier.covers(rule) {
				add("streams.placement", "rule %d is never used: rule %d takes its addresses", i+1, j+1)
				break
			}
		}
	}
	return append(ps, c.checkWiring(found)...)
}

// checkWiring finds what is wrong with topics and routes. Where some could not
// be read, the others are judged all the same: their numbers are those of the
// list.
func (c *Config) checkWiring(found Problems) (ps Problems) {
	add := func(key string, fs []wiring.Fault) {
		for _, f := range fs {
			if path := key + f.Path; !found.about(path) {
				ps = append(ps, Problem{Key: path, Source: c.sources[key], Text: f.Text})
			}
		}
	}
	add("topics", wiring.JudgeTopics(c.Topics, int64(c.Runtime.MaxBytes)))
	add("routes", wiring.JudgeRoutes(c.Routes))
	return ps
}

// checkTLS finds what is missing for TLS, and what would have no effect
// without it.
func (c *Config) checkTLS(add func(key, format string, args ...any)) {
	if (c.TLS.CertFile == "") != (c.TLS.KeyFile == "") {
		missing := map[bool]string{true: "tls.cert_file", false: "tls.key_file"}[c.TLS.CertFile == ""]
		add(missing, "must be set: a certificate and its private key go together")
	}
	if c.TLS.ClientCA != "" && c.TLS.CertFile == "" {
		add("tls.client_ca", "needs tls.cert_file and tls.key_file: without TLS no client shows a certificate")
	}
	if len(c.Auth.Certificates) > 0 && c.TLS.ClientCA == "" {
		add("auth.certificates", "needs tls.client_ca: which authorities vouch for these certificates?")
	}
	if c.Auth.JWKSIssuer != "" && c.Auth.JWKSURL == "" {
		add("auth.jwks_issuer", "needs auth.jwks_url")
	}
}

// isEmpty reports whether a key that must be set is not.
func (c *Config) isEmpty(k *Key) bool {
	switch v := k.field(c).(type) {
	case *string:
		return *v == ""
	case *[]string:
		return len(*v) == 0
	case *[]KeyFile:
		return len(*v) == 0
	}
	return false
}
