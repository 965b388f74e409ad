package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the documentation page")

// required is the least environment with which serve can start.
var required = []string{
	"AETHER_POSTGRES_URL=postgres://u:pw-hidden@db/aether",
	"AETHER_RABBITMQ_STREAM_URL=rabbitmq-stream://u:pw-hidden@mq:5552/%2f",
	"AETHER_JWT_KEY_FILE=/etc/key.hs256",
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gateway.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func problemsOf(t *testing.T, o Options) []string {
	t.Helper()
	_, err := Load(o)
	if err == nil {
		return nil
	}
	var ps Problems
	if !errors.As(err, &ps) {
		t.Fatalf("error is a %T", err)
	}
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
		if o.File != "" {
			lines[i] = strings.ReplaceAll(lines[i], o.File, "FILE")
		}
	}
	return lines
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	dev, err := Load(Options{Mode: Dev})
	if err != nil {
		t.Fatal(err)
	}
	if dev.GRPCAddr != "127.0.0.1:50051" || dev.DataDir != ".aether" || dev.OpsAddr != Off || !dev.GRPC.Reflection {
		t.Errorf("dev: %+v", dev)
	}
	serve, err := Load(Options{Mode: Serve, Environ: required})
	if err != nil {
		t.Fatal(err)
	}
	if serve.Streams.Retention.MaxAge != 7*24*time.Hour || serve.Session.MaxUnacked != 256 || serve.GRPC.Reflection ||
		serve.MaxPayload != 1_000_000 || serve.Shutdown.Timeout != 20*time.Second || serve.Auth.Audience != "aether" {
		t.Errorf("serve: %+v", serve)
	}
}

func TestLaterLayersWin(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "grpc_addr: 127.0.0.1:1\nhttp_addr: 127.0.0.1:2\nstreams:\n  partitions: 7\n  retention: {max_age: 2d}\n")
	c, err := Load(Options{
		Mode: Serve, File: file,
		Environ: append([]string{"AETHER_GRPC_ADDR=127.0.0.1:3", "AETHER_HTTP_ADDR=127.0.0.1:4", "AETHER_STREAMS_PARTITIONS="}, required...),
		Flags:   map[string]string{"http_addr": "127.0.0.1:5"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.GRPCAddr != "127.0.0.1:3" || c.HTTPAddr != "127.0.0.1:5" || c.Streams.Partitions != 7 || c.Streams.Retention.MaxAge != 48*time.Hour {
		t.Errorf("got %q %q %d %s", c.GRPCAddr, c.HTTPAddr, c.Streams.Partitions, c.Streams.Retention.MaxAge)
	}
	want := map[string]Source{
		"grpc_addr":             {FromEnvironment, "AETHER_GRPC_ADDR"},
		"http_addr":             {FromFlag, "--http-addr"},
		"streams.partitions":    {FromFile, file},
		"session.write_timeout": {Kind: FromDefault},
	}
	for key, source := range want {
		if got := c.Source(key); got != source {
			t.Errorf("%s comes from %v, want %v", key, got, source)
		}
	}
}

// Every variable that scripts rely on by name.
func TestEnvironmentNames(t *testing.T) {
	t.Parallel()
	env := map[string]string{
		"AETHER_GRPC_ADDR": "127.0.0.1:0", "AETHER_HTTP_ADDR": "127.0.0.1:0", "AETHER_POSTGRES_URL": "postgres://h/d",
		"AETHER_REDIS_URL": "redis://h", "AETHER_RABBITMQ_STREAM_URL": "rabbitmq-stream://a,rabbitmq-stream://b",
		"AETHER_JWT_KEY_FILE": "a.hs256,HS256:b", "AETHER_INSTANCE_ID": "one", "AETHER_RATE_MESSAGES": "0", "AETHER_RATE_BYTES": "0",
		"AETHER_MAX_PAYLOAD": "1000", "AETHER_STREAMS_SEGMENT_BYTES": "1MiB", "AETHER_STREAMS_RETENTION_MAX_AGE": "1h",
		"AETHER_STREAMS_RETENTION_MAX_BYTES": "0", "AETHER_SESSION_HEARTBEAT_INTERVAL": "1s", "AETHER_SESSION_KEEPALIVE_TIME": "1s",
		"AETHER_SESSION_KEEPALIVE_TIMEOUT": "1s", "AETHER_TASKS_START_DEADLINE": "1s", "AETHER_TASKS_GRACE_WINDOW": "1s",
		"AETHER_ADMISSION_RATE": "1", "AETHER_SHUTDOWN_TIMEOUT": "1s", "AETHER_RUNTIME_MAX_BYTES": "1GiB",
		"AETHER_WORKSPACES_AUTO_CREATE": "true", "AETHER_AUTH_ISSUER": "i", "AETHER_AUTH_AUDIENCE": "a",
	}
	var environ []string
	for k, v := range env {
		environ = append(environ, k+"="+v)
	}
	for _, mode := range []Mode{Serve, Dev} {
		c, err := Load(Options{Mode: mode, Environ: environ})
		if err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		for name := range env {
			k := byEnv[name]
			if k == nil {
				t.Fatalf("%s sets nothing", name)
			}
			if got := c.Source(k.Name); got != (Source{FromEnvironment, name}) {
				t.Errorf("%s comes from %v", k.Name, got)
			}
		}
		if got := c.JWT.KeyFiles; !cmp.Equal(got, []KeyFile{{Path: "a.hs256"}, {Path: "b", Alg: "HS256"}}) {
			t.Errorf("key files: %v", got)
		}
		if len(c.RabbitMQ.StreamURLs) != 2 || c.Rate.Messages != 0 || c.Streams.SegmentBytes != 1<<20 {
			t.Errorf("%+v", c)
		}
	}
}

func TestNotAllVariablesAreOurs(t *testing.T) {
	t.Parallel()
	// A Kubernetes service called aether puts such variables into every pod.
	got := problemsOf(t, Options{Mode: Dev, Environ: []string{
		"AETHER_ADDR=x", "AETHER_TOKEN=x", "AETHER_SERVICE_HOST=10.0.0.1", "AETHER_PORT=tcp://10.0.0.1:1", "PATH=/bin", "broken",
		"AETHER_PORT_50051_TCP_ADDR=10.0.0.1", "AETHER_GATEWAY_SERVICE_PORT_GRPC=1",
	}})
	if got != nil {
		t.Error(got)
	}
}

func TestProblems(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name    string
		mode    Mode
		file    string
		environ []string
		want    []string
	}{
		{name: "all at once", mode: Serve, file: `
grpc_adr: 127.0.0.1:1
session: {max_unacked: 0, write_timeout: 20, heartbeat_interval: soon}
retention: {max_age: 1d}
log: {level: loud}
streams: {retention: {max_bytes: 1G}, partitions: [1, 2], placement: {prefix: ag}}
`, environ: []string{"AETHER_SHUTDOWN_TIMEOUTS=1s", "AETHER_HTTP_ADDR=8080", "AETHER_GRPC_REFLECTION=maybe"}, want: []string{
			`AETHER_SHUTDOWN_TIMEOUTS (environment): no key has this variable; did you mean AETHER_SHUTDOWN_TIMEOUT?`,
			`grpc.reflection (environment AETHER_GRPC_REFLECTION): "maybe" is neither true nor false`,
			`grpc_adr (file FILE): there is no such key; did you mean grpc_addr?`,
			`http_addr (environment AETHER_HTTP_ADDR): "8080" is no listen address; write HOST:PORT such as 127.0.0.1:50051`,
			`jwt.key_file: must be set for ` + "`gateway serve`" + `: in the file, or by AETHER_JWT_KEY_FILE; auth.jwks_url would do as well`,
			`log.level (file FILE): "loud" is not accepted; accepted are debug, info, warn, error`,
			`postgres.url: must be set for ` + "`gateway serve`" + `: in the file, or by AETHER_POSTGRES_URL`,
			`rabbitmq.stream_url: must be set for ` + "`gateway serve`" + `: in the file, or by AETHER_RABBITMQ_STREAM_URL`,
			`retention.max_age (file FILE): there is no such key; did you mean streams.retention.max_age?`,
			`session.heartbeat_interval (file FILE): "soon" is no duration; write one such as 250ms, 20s, 5m, 1h30m or 7d`,
			`session.max_unacked (file FILE): 0 is out of range; accepted is 1 to 65536`,
			`session.write_timeout (file FILE): "20" has no unit; write 20s for seconds, or ms, m, h, d`,
			`streams.partitions (file FILE): takes one value, not a list`,
			`streams.placement.prefix (file FILE): streams.placement is a single value and has no keys below it`,
			`streams.retention.max_bytes (file FILE): "1G" is no size; write bytes, or a whole number with B, KB, MB, GB, TB (1000) or KiB, MiB, GiB, TiB (1024)`,
		}},
		{name: "second document", mode: Dev, file: "log: {level: info}\n---\nlog: {level: debug}\n", want: []string{
			"FILE: holds more than one document (`---`); only one would be read",
		}},
		{name: "key twice", mode: Dev, file: "instance_id: a\ninstance_id: b\n", want: []string{
			`FILE: is not valid YAML: line 2: mapping key "instance_id" already defined at line 1`,
		}},
		{name: "no mapping", mode: Dev, file: "- a\n", want: []string{"FILE: must hold keys and values (`key: value`)"}},
		{name: "section as value", mode: Dev, file: "log: debug\n", want: []string{"log (file FILE): is a section; set the keys below it"}},
		{name: "value as section", mode: Dev, file: "log: {level: {to: debug}}\n", want: []string{
			"log.level.to (file FILE): log.level is a single value and has no keys below it",
		}},
		{name: "placement", mode: Dev, file: `
streams:
  placement:
    - {prefix: agent}
    - {workspace: "a b", prefixes: ag}
    - {prefix: ag, address: "ag::w::i::s"}
    - {prefix: us, workspace: w}
    - ag
`, want: []string{
			`streams.placement (file FILE): item 1 of 5: prefix: "agent" is no prefix of an address; ` +
				`item 2 of 5: prefixes: there is no such field; did you mean prefix?; workspace: invalid address "a b": a segment contains white space (segment 1); ` +
				`item 3 of 5: a rule has a prefix or an address, and not both; ` +
				`item 4 of 5: workspace: cannot be given with prefix us, whose addresses do not begin with one; ` +
				`item 5 of 5: is no rule; write {prefix: …}, {prefix: …, workspace: …} or {address: …}`,
		}},
		{name: "placement never used", mode: Dev, environ: []string{
			"AETHER_STREAMS_PLACEMENT=[{address: 'ag::w::i::s'}, {prefix: ag, workspace: w}, {prefix: ag}, {prefix: ag, workspace: x}, {prefix: ga, workspace: w}, {address: 'ga::w'}]",
		}, want: []string{
			"streams.placement (environment AETHER_STREAMS_PLACEMENT): rule 4 is never used: rule 3 takes its addresses",
			"streams.placement (environment AETHER_STREAMS_PLACEMENT): rule 6 is never used: rule 5 takes its addresses",
		}},
		{name: "between keys", mode: Dev, environ: []string{
			"AETHER_GRPC_ADDR=:1", "AETHER_HTTP_ADDR=:1", "AETHER_SESSION_MAX_UNACKED=20000",
		}, want: []string{
			"http_addr (environment AETHER_HTTP_ADDR): is the same as grpc_addr (:1); each needs a port of its own",
			"session.max_unacked (environment AETHER_SESSION_MAX_UNACKED): is 20000, above session.max_unacked_limit (10000)",
		}},
		{name: "TLS", mode: Dev, environ: []string{
			"AETHER_TLS_KEY_FILE=/etc/key.pem", "AETHER_TLS_CLIENT_CA=/etc/ca.pem", "AETHER_AUTH_JWKS_ISSUER=https://idp",
			"AETHER_AUTH_CERTIFICATES=[{dns: d, kind: agent, workspace: w}, {kind: agent}, {dns: d, uri: u}, x, {dns: [d]}]",
		}, want: []string{
			"auth.certificates (environment AETHER_AUTH_CERTIFICATES): item 1 of 5: workspace: there is no such field; did you mean workspaces?; " +
				"item 2 of 5: an entry has one of subject, dns, uri and email; item 3 of 5: an entry has one of subject, dns, uri and email; " +
				"item 4 of 5: is no entry; write {uri: 'spiffe://…', kind: agent, workspaces: [w], impl: i, spec: s}; " +
				"item 5 of 5: dns: takes one value, not a list",
			"auth.jwks_issuer (environment AETHER_AUTH_JWKS_ISSUER): needs auth.jwks_url",
			"tls.cert_file: must be set: a certificate and its private key go together",
			"tls.client_ca (environment AETHER_TLS_CLIENT_CA): needs tls.cert_file and tls.key_file: without TLS no client shows a certificate",
		}},
		{name: "published keys are enough", mode: Serve, environ: append(slices.Clone(required[:2]), "AETHER_AUTH_JWKS_URL=https://idp.example/keys"), want: nil},
		{name: "segments", mode: Serve, environ: append([]string{"AETHER_STREAMS_SEGMENT_BYTES=2GiB", "AETHER_STREAMS_RETENTION_MAX_BYTES=1GiB"}, required...), want: []string{
			"streams.segment_bytes (environment AETHER_STREAMS_SEGMENT_BYTES): is 2GiB, above streams.retention.max_bytes (1GiB): nothing would ever be removed",
		}},
		{name: "too many streams", mode: Dev, environ: []string{"AETHER_STREAMS_PARTITIONS=256", "AETHER_STREAMS_PLACEMENT=[{prefix: ag}]"}, want: []string{
			"streams.placement (environment AETHER_STREAMS_PLACEMENT): makes 257 streams with streams.partitions; at most 256 can be read at once",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := Options{Mode: tt.mode, Environ: tt.environ}
			if tt.file != "" {
				o.File = writeFile(t, tt.file)
			}
			if diff := cmp.Diff(tt.want, problemsOf(t, o)); diff != "" {
				t.Error(diff)
			}
		})
	}
	got := problemsOf(t, Options{Mode: Dev, File: "/nowhere/at/all.yaml"})
	if want := []string{"the configuration file FILE does not exist"}; !cmp.Equal(got, want) {
		t.Error(got)
	}
}

// A password must not be shown, least of all when something is wrong with the
// URL that holds it.
func TestPasswordsAreNotShown(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"postgres://u:pw-hidden@db:5432/aether?sslmode=require&password=pw-hidden",
		"postgres://u:pw-hidden@db:port/aether",
		"postgres://u:%zzpw-hidden@db",
		"mysql://u:pw-hidden@db",
		"u:pw-hidden@db",
		"//u:pw-hidden@db/aether",
		"postgres://u:pw-hidden",
		"host=db password=pw-hidden",
		"postgres:pw-hidden",
		"postgres://\x01pw-hidden@h",
	} {
		environ := []string{"AETHER_JWT_KEY_FILE=k", "AETHER_POSTGRES_URL=" + url, "AETHER_RABBITMQ_STREAM_URL=" + url}
		c, err := Load(Options{Mode: Serve, Environ: environ})
		if err == nil {
			t.Errorf("%s: accepted as a RabbitMQ URL", url)
		} else if strings.Contains(err.Error(), "hidden") {
			t.Errorf("shown in an error: %v", err)
		}
		for _, e := range c.Entries() {
			if strings.Contains(e.Value, "hidden") {
				t.Errorf("shown by print: %v", e)
			}
		}
		if strings.Contains(RedactURL(url), "hidden") {
			t.Errorf("RedactURL(%q) = %q", url, RedactURL(url))
		}
	}
	const full = "postgres://u:pw@db:5432/aether?sslmode=require&password=x"
	if got, want := RedactURL(full), "postgres://u:***@db:5432/aether?sslmode=require&password=***"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestNotes(t *testing.T) {
	t.Parallel()
	c, err := Load(Options{Mode: Dev, Environ: []string{"AETHER_REDIS_URL=redis://h", "AETHER_POSTGRES_URL=postgres://h/d", "AETHER_LOG_LEVEL=debug"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, n := range c.Notes() {
		got = append(got, n.String())
	}
	want := []string{
		"postgres.url (environment AETHER_POSTGRES_URL): has no effect in dev",
		"redis.url (environment AETHER_REDIS_URL): has no effect in dev",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// What print shows can be set again and gives the same.
func TestPrintedValuesCanBeSet(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "streams: {placement: [{prefix: metric}, {address: 'ag::w::i::s'}, {prefix: ag, workspace: 'w'}]}\njwt: {key_file: [a.hs256, 'HS256:b']}\n")
	first, err := Load(Options{Mode: Dev, File: file})
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Streams.Placement) != 3 {
		t.Fatalf("%+v", first.Streams.Placement)
	}
	var environ []string
	for _, e := range first.Entries() {
		environ = append(environ, byName[e.Key].Env()+"="+e.Value)
	}
	second, err := Load(Options{Mode: Dev, Environ: environ})
	if err != nil {
		t.Fatal(err)
	}
	first.sources, second.sources = nil, nil
	if diff := cmp.Diff(first, second, cmp.AllowUnexported(Config{})); diff != "" {
		t.Error(diff)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	if len(byEnv) != len(table) || len(byName) != len(table) {
		t.Error("two keys share a name or a variable")
	}
	for _, k := range Keys() {
		if k.Doc == "" || !strings.HasSuffix(k.Doc, ".") {
			t.Errorf("%s: the text is no sentence", k.Name)
		}
		if isSection(k.Name) {
			t.Errorf("%s is a section and a value", k.Name)
		}
		if k.Secret() && len(k.Schemes) == 0 {
			t.Errorf("%s accepts no scheme", k.Name)
		}
		if clusterEnv.MatchString(k.Env()) {
			t.Errorf("%s looks like a variable of Kubernetes", k.Env())
		}
	}
}

func TestDocumentation(t *testing.T) {
	const page = "../../docs/configuration.md"
	if *update {
		if err := os.WriteFile(page, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Markdown(), string(got)); diff != "" {
		t.Errorf("docs/configuration.md is out of date; run: go test ./internal/config -run TestDocumentation -update\n%s", diff)
	}
	if got := problemsOf(t, Options{Mode: Serve, File: writeFile(t, Example)}); got != nil {
		t.Errorf("the documented example: %v", got)
	}
}
