package main

import (
	"encoding/json"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/testservices"
)

func TestServe(t *testing.T) {
	t.Parallel()
	key, db, mq := keyFile(t, "k.hs256"), testservices.NewPostgres(t), testservices.RabbitMQ(t)
	environ := []string{
		"AETHER_GRPC_ADDR=127.0.0.1:0", "AETHER_HTTP_ADDR=127.0.0.1:0", "AETHER_OPS_ADDR=127.0.0.1:0", "AETHER_POSTGRES_URL=" + db.URL(),
		"AETHER_RABBITMQ_STREAM_URL=" + mq.URL(), "AETHER_JWT_KEY_FILE=" + key, "AETHER_STREAMS_PARTITIONS=2", "AETHER_WORKSPACES_AUTO_CREATE=true",
	}

	// An empty database is refused with what to do, and that does it.
	if code, _, stderr := command(environ, "", "serve"); code != 1 || !strings.Contains(stderr, `gateway migrate up`) {
		t.Fatalf("without tables: exit %d\n%s", code, stderr)
	}
	if out := succeed(t, environ, "migrate", "status"); !strings.Contains(out, "not applied") {
		t.Error(out)
	}
	if out := succeed(t, environ, "migrate", "up"); !strings.Contains(out, "migrations applied, schema version") || strings.HasPrefix(out, "0 ") {
		t.Error(out)
	}
	var rows []struct {
		Version   int64
		AppliedAt *string `json:"applied_at"`
	}
	out := succeed(t, environ, "migrate", "status", "--output", "json")
	if err := json.Unmarshal([]byte(out), &rows); err != nil || len(rows) == 0 || rows[0].AppliedAt == nil {
		t.Errorf("%v: %s", err, out)
	}
	succeed(t, environ, "migrate", "down")

	g := launch(t, environ, "serve", "--migrate")
	if log := g.stderr.String(); !strings.Contains(log, "redis.url is not set") {
		t.Errorf("it does not say that it is alone:\n%s", log)
	}
	ops := regexp.MustCompile(`"ops":"([^"]+)"`).FindStringSubmatch(g.stderr.String())
	if ops == nil {
		t.Fatalf("the operators' port is not logged:\n%s", g.stderr)
	}
	if status, body := get(t, "http://"+g.http+"/readyz"); status != 200 || body != "ready\n" {
		t.Errorf("/readyz: %d %q", status, body)
	}
	if status, _ := get(t, "http://"+g.http+"/metrics"); status != 404 {
		t.Errorf("/metrics on the public port: %d", status)
	}

	client := append(environ, "AETHER_ADDR="+g.grpc)
	succeed(t, client, "send", "--as", "us::alice::cli", "--to", "ag::w::i::s", "--text", "kept")
	g.stop(t)

	g = launch(t, environ, "serve")
	client = append(environ, "AETHER_ADDR="+g.grpc)
	token := strings.TrimSpace(succeed(t, client, "token", "create", "--kind", "agent", "--workspace", "w", "--impl", "i", "--spec", "s"))
	row := succeed(t, append(client, "AETHER_TOKEN="+token), "connect", "--count", "1", "--output", "json")
	var m struct{ Source, Topic, Text, Workspace string }
	if err := json.Unmarshal([]byte(row), &m); err != nil || m.Text != "kept" || m.Source != "us::alice::cli" || m.Topic != "ag::w::i::s" || m.Workspace != "w" {
		t.Errorf("%v: %s", err, row)
	}

	// Without its database it is alive and not ready; why is for operators.
	db.Kill()
	ops = regexp.MustCompile(`"ops":"([^"]+)"`).FindStringSubmatch(g.stderr.String())
	g.stderr.wait(t, `"msg":"not ready`)
	if status, body := get(t, "http://"+g.http+"/readyz"); status != 503 || body != "not ready\n" {
		t.Errorf("/readyz: %d %q", status, body)
	}
	if status, body := get(t, "http://"+ops[1]+"/readyz"); status != 503 || !strings.Contains(body, "\npostgres: ") || !strings.Contains(body, "\nlog partition 1: ok\n") {
		t.Errorf("/readyz of operators: %d %q", status, body)
	}
	if status, body := get(t, "http://"+ops[1]+"/metrics"); status != 200 || !strings.Contains(body, "aether_ready 0") ||
		!strings.Contains(body, "aether_dependency_up{dependency=\"postgres\"} 0") || !strings.Contains(body, "aether_dependency_up{dependency=\"log\"} 1") {
		t.Errorf("/metrics of operators: %d", status)
	}
	if status, _ := get(t, "http://"+g.http+"/healthz"); status != 200 {
		t.Errorf("/healthz: %d", status)
	}
	db.Start()
	g.stop(t)
}

// What cannot work by waiting is told at once, without a password.
func TestServeRefuses(t *testing.T) {
	t.Parallel()
	key := keyFile(t, "k.hs256")
	db := testservices.Postgres(t)
	environ := []string{
		"AETHER_GRPC_ADDR=127.0.0.1:0", "AETHER_HTTP_ADDR=127.0.0.1:0", "AETHER_OPS_ADDR=off",
		"AETHER_RABBITMQ_STREAM_URL=rabbitmq-stream://u:pw-hidden@127.0.0.1:1", "AETHER_JWT_KEY_FILE=" + key,
	}
	nowhere := regexp.MustCompile(`/[^/?]+(\?|$)`).ReplaceAllString(db.URL(), "/no_such_database$1")
	code, stdout, stderr := command(append(environ, "AETHER_POSTGRES_URL="+nowhere), "", "serve", "--migrate")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "no_such_database") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	code, _, stderr = command(append(environ, "AETHER_POSTGRES_URL="+nowhere), "", "serve")
	if code != 1 || !strings.Contains(stderr, "no_such_database") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	if strings.Contains(stderr, "hidden") {
		t.Errorf("a password is shown:\n%s", stderr)
	}
	if code, _, stderr := command(append(environ, "AETHER_POSTGRES_URL="+nowhere, "AETHER_JWT_KEY_FILE=/nowhere.hs256"), "", "serve"); code != 1 || !strings.Contains(stderr, "/nowhere.hs256") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

// Who cannot have the ports has not touched the database.
func TestServePortsFirst(t *testing.T) {
	t.Parallel()
	key, db := keyFile(t, "k.hs256"), testservices.Postgres(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	environ := []string{
		"AETHER_GRPC_ADDR=" + taken.Addr().String(), "AETHER_HTTP_ADDR=127.0.0.1:0", "AETHER_OPS_ADDR=off", "AETHER_POSTGRES_URL=" + db.URL(),
		"AETHER_RABBITMQ_STREAM_URL=rabbitmq-stream://guest:guest@127.0.0.1:1", "AETHER_JWT_KEY_FILE=" + key,
	}
	if code, _, stderr := command(environ, "", "serve", "--migrate"); code != 1 || !strings.Contains(stderr, "is taken by another process") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	if _, stdout, stderr := command(environ, "", "migrate", "status"); !strings.Contains(stdout+stderr, "not applied") {
		t.Errorf("migrated without ports:\n%s%s", stdout, stderr)
	}
}

// Two gateways with one Redis serve together: what is sent at one is read at
// the other. One without Redis is kept out, and one with an instance id that is
// taken.
func TestServeTwo(t *testing.T) {
	t.Parallel()
	key, db, mq, mem := keyFile(t, "k.hs256"), testservices.Postgres(t), testservices.RabbitMQ(t), testservices.Redis(t)
	alone := []string{
		"AETHER_GRPC_ADDR=127.0.0.1:0", "AETHER_HTTP_ADDR=127.0.0.1:0", "AETHER_OPS_ADDR=127.0.0.1:0", "AETHER_POSTGRES_URL=" + db.URL(),
		"AETHER_RABBITMQ_STREAM_URL=" + mq.URL(), "AETHER_JWT_KEY_FILE=" + key, "AETHER_STREAMS_PARTITIONS=2", "AETHER_WORKSPACES_AUTO_CREATE=true",
	}
	environ := append(alone[:len(alone):len(alone)], "AETHER_REDIS_URL="+mem.URL())
	a := launch(t, append(environ, "AETHER_INSTANCE_ID=a"), "serve", "--migrate")
	b := launch(t, append(environ, "AETHER_INSTANCE_ID=b"), "serve")
	succeed(t, append(environ, "AETHER_ADDR="+a.grpc), "send", "--as", "us::alice::cli", "--to", "ag::w::i::s", "--text", "kept")
	token := strings.TrimSpace(succeed(t, environ, "token", "create", "--kind", "agent", "--workspace", "w", "--impl", "i", "--spec", "s"))
	row := succeed(t, append(environ, "AETHER_ADDR="+b.grpc, "AETHER_TOKEN="+token), "connect", "--count", "1", "--output", "json")
	if !strings.Contains(row, `"kept"`) {
		t.Errorf("got %s", row)
	}
	if code, _, stderr := command(append(environ, "AETHER_INSTANCE_ID=b"), "", "serve"); code != 1 || !strings.Contains(stderr, `instance id \"b\"`) && !strings.Contains(stderr, `instance id "b"`) {
		t.Errorf("the same instance id: exit %d\n%s", code, stderr)
	}
	if code, _, stderr := command(alone, "", "serve"); code != 1 || !strings.Contains(stderr, "another gateway serves on this database") {
		t.Errorf("without Redis: exit %d\n%s", code, stderr)
	}
	// Without Redis nobody is given a lease, and operators see why.
	mem.Kill()
	ops := regexp.MustCompile(`"ops":"([^"]+)"`).FindStringSubmatch(a.stderr.String())
	a.stderr.wait(t, `"msg":"not ready`)
	if status, body := get(t, "http://"+ops[1]+"/readyz"); status != 503 || !strings.Contains(body, "\nredis: ") || !strings.Contains(body, "\nlog partition 1: ok\n") {
		t.Errorf("/readyz of operators: %d %q", status, body)
	}
	mem.Start()
	a.stop(t)
	b.stop(t)
}
