package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aether-gateway/gateway/internal/testservices"
)

// A gateway that is started before all that it needs waits for one after the
// other, is alive meanwhile, and says on /readyz what it waits for.
func TestServeWaitsForAllDependencies(t *testing.T) {
	t.Parallel()
	key, db, mq, mem := keyFile(t, "k.hs256"), testservices.NewPostgres(t), testservices.NewBroker(t), testservices.Redis(t)
	http, ops := fmt.Sprintf("127.0.0.1:%d", testservices.FreePort(t)), fmt.Sprintf("127.0.0.1:%d", testservices.FreePort(t))
	environ := []string{
		"AETHER_GRPC_ADDR=127.0.0.1:0", "AETHER_HTTP_ADDR=" + http, "AETHER_OPS_ADDR=" + ops, "AETHER_POSTGRES_URL=" + db.URL(),
		"AETHER_RABBITMQ_STREAM_URL=" + mq.URL(), "AETHER_REDIS_URL=" + mem.URL(), "AETHER_JWT_KEY_FILE=" + key, "AETHER_WORKSPACES_AUTO_CREATE=true",
	}
	db.Kill()
	mq.Kill()
	mem.Kill()
	g := begin(t, environ, "serve", "--migrate")
	waits := func(title string, lines ...string) {
		t.Helper()
		g.stderr.wait(t, `"msg":"waiting for `+title)
		if status, _ := get(t, "http://"+http+"/healthz"); status != 200 {
			t.Errorf("while it waits for %s /healthz says %d", title, status)
		}
		if code, stdout, _ := command(environ, "", "health", "--live"); code != 0 || stdout != "alive\n" {
			t.Errorf("while it waits for %s: gateway health --live: exit %d, %q", title, code, stdout)
		}
		if code, stdout, _ := command(environ, "", "health"); code != 1 || stdout != "not ready\n" {
			t.Errorf("while it waits for %s: gateway health: exit %d, %q", title, code, stdout)
		}
		status, body := get(t, "http://"+ops+"/readyz")
		if status != 503 {
			t.Errorf("while it waits for %s /readyz says %d", title, status)
		}
		for _, line := range append(lines, "\ngateway: the gateway is starting") {
			if !strings.Contains(body, line) {
				t.Errorf("while it waits for %s /readyz does not say %q:\n%s", title, line, body)
			}
		}
	}
	waits("PostgreSQL", "\npostgres: postgres: ", "\nlog: not asked yet", "\nredis: not asked yet")
	db.Start()
	waits("RabbitMQ", "\npostgres: ok", "\nlog: rabbitmq: ", "\nredis: not asked yet")
	mq.Start()
	waits("Redis", "\npostgres: ok", "\nlog partition 0: ", "\nredis: ")
	mem.Start()
	g.await(t)
	for _, title := range []string{"PostgreSQL", "RabbitMQ", "Redis"} {
		if !strings.Contains(g.stderr.String(), `"msg":"`+title+` is there"`) {
			t.Errorf("it does not say that %s is there:\n%s", title, g.stderr)
		}
	}
	if status, body := get(t, "http://"+ops+"/readyz"); status != 200 || strings.Contains(body, "\nlog: ") {
		t.Errorf("/readyz: %d %q", status, body)
	}
	if code, stdout, _ := command(environ, "", "health"); code != 0 || stdout != "ready\n" {
		t.Errorf("gateway health: exit %d, %q", code, stdout)
	}
	succeed(t, append(environ, "AETHER_ADDR="+g.grpc), "send", "--as", "us::alice::cli", "--to", "ag::w::i::s", "--text", "x")
}

// The same if they take connections and say nothing.
func TestServeWaitsForHangingDependencies(t *testing.T) {
	t.Parallel()
	key, db, mq, mem := keyFile(t, "k.hs256"), testservices.NewPostgres(t), testservices.NewBroker(t), testservices.Redis(t)
	environ := []string{
		"AETHER_GRPC_ADDR=127.0.0.1:0", "AETHER_HTTP_ADDR=127.0.0.1:0", "AETHER_OPS_ADDR=off", "AETHER_POSTGRES_URL=" + db.URL(),
		"AETHER_RABBITMQ_STREAM_URL=" + mq.URL(), "AETHER_REDIS_URL=" + mem.URL(), "AETHER_JWT_KEY_FILE=" + key,
	}
	db.Stop()
	mq.Stop()
	mem.Stop()
	g := begin(t, environ, "serve", "--migrate")
	g.stderr.wait(t, `"msg":"waiting for PostgreSQL`)
	db.Cont()
	g.stderr.wait(t, `"msg":"waiting for RabbitMQ`)
	mq.Cont()
	g.stderr.wait(t, `"msg":"waiting for Redis`)
	mem.Cont()
	g.await(t)
}

// What waiting does not mend ends the start at once, and is named.
func TestServeIsRefusedByADependency(t *testing.T) {
	t.Parallel()
	key, db, mq, mem := keyFile(t, "k.hs256"), testservices.Postgres(t), testservices.RabbitMQ(t), testservices.Redis(t)
	environ := []string{
		"AETHER_GRPC_ADDR=127.0.0.1:0", "AETHER_HTTP_ADDR=127.0.0.1:0", "AETHER_OPS_ADDR=off", "AETHER_POSTGRES_URL=" + db.URL(),
		"AETHER_RABBITMQ_STREAM_URL=" + mq.URL(), "AETHER_REDIS_URL=" + mem.URL(), "AETHER_JWT_KEY_FILE=" + key, "AETHER_WORKSPACES_AUTO_CREATE=true", "AETHER_STREAMS_PARTITIONS=2",
	}
	client := goredis.NewClient(&goredis.Options{Addr: mem.Addr()})
	defer client.Close()
	if err := client.ConfigSet(t.Context(), "requirepass", "pw-right").Err(); err != nil {
		t.Fatal(err)
	}
	broker := fmt.Sprintf("127.0.0.1:%d", mq.StreamPort())
	for _, tt := range []struct{ environ, says string }{
		{"AETHER_REDIS_URL=" + mem.URL(), "gateway: redis.url: presence: leases are not available: Redis: NOAUTH"},
		{"AETHER_REDIS_URL=redis://:pw-hidden@" + mem.Addr() + "/0", "WRONGPASS"},
		{"AETHER_REDIS_URL=redis://:pw-right@" + mem.Addr() + "/4000", "DB index"},
		{"AETHER_REDIS_URL=rediss://:pw-hidden@" + mem.Addr() + "/0", "answers without TLS"},
		{"AETHER_RABBITMQ_STREAM_URL=rabbitmq-stream://guest:pw-hidden@" + broker + "/%2f", "refuses user or password"},
		{"AETHER_RABBITMQ_STREAM_URL=rabbitmq-stream://guest:guest@" + broker + "/nowhere", "refuses access"},
		{"AETHER_POSTGRES_URL=postgres://nobody:pw-hidden@" + fmt.Sprintf("127.0.0.1:%d", db.Port()) + "/postgres?sslmode=disable", `user "nobody"`},
	} {
		name, _, _ := strings.Cut(tt.environ, "=")
		began := time.Now()
		code, stdout, stderr := command(append(environ, tt.environ), "", "serve", "--migrate")
		if code != 1 || stdout != "" || !strings.Contains(stderr, tt.says) || strings.Contains(stderr, "hidden") {
			t.Errorf("%s: exit %d, want %q\n%s%s", name, code, tt.says, stdout, stderr)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: it took %s", name, took)
		}
	}
}

// The parts have the last word on their URLs, before anything is started.
func TestConfigCheckAsksTheParts(t *testing.T) {
	t.Parallel()
	environ := []string{"AETHER_POSTGRES_URL=postgres://db/aether", "AETHER_RABBITMQ_STREAM_URL=rabbitmq-stream://mq", "AETHER_JWT_KEY_FILE=" + keyFile(t, "k.hs256")}
	for _, tt := range []struct{ environ, says string }{
		{"AETHER_POSTGRES_URL=postgres://u:pw-hidden@db/aether?pool_max_conns=x", "problem: postgres.url (environment AETHER_POSTGRES_URL): postgres: "},
		{"AETHER_POSTGRES_URL=postgres://u:pw-hidden@db/aether?sslmode=on", "unknown sslmode"},
		{"AETHER_RABBITMQ_STREAM_URL=rabbitmq-stream://u:pw-hidden@mq/a/b", "problem: rabbitmq.stream_url (environment AETHER_RABBITMQ_STREAM_URL): rabbitmq: "},
		{"AETHER_RABBITMQ_STREAM_URL=rabbitmq-stream://a,rabbitmq-stream+tls://b", "with and without TLS"},
		{"AETHER_RABBITMQ_STREAM_URL=rabbitmq-stream://u:pw-hidden@mq?x=y", "takes no parameters"},
		{"AETHER_REDIS_URL=redis://:pw-hidden@a:1,b:2", "several hosts"},
		{"AETHER_REDIS_URL=redis://h/?skip_verify=pw-hidden", "problem: redis.url"},
		{"AETHER_REDIS_PASSWORD_FILE=/nowhere", "redis.url is not"},
	} {
		code, stdout, stderr := command(append(environ, tt.environ), "", "config", "check")
		if code != 1 || !strings.Contains(stdout, tt.says) || strings.Count(stdout, "problem: ") != 1 || strings.Contains(stdout+stderr, "hidden") {
			t.Errorf("%s: exit %d, want %q\n%s%s", tt.environ, code, tt.says, stdout, stderr)
		}
	}
}
