package main

import (
	"testing"

	"github.com/aether-gateway/gateway/internal/testservices"
)

// A gateway and its database may start together, in any order.
func TestServeWaitsForItsDatabase(t *testing.T) {
	t.Parallel()
	key, db := keyFile(t, "k.hs256"), testservices.NewPostgres(t)
	environ := []string{
		"AETHER_GRPC_ADDR=127.0.0.1:0", "AETHER_HTTP_ADDR=127.0.0.1:0", "AETHER_OPS_ADDR=off", "AETHER_POSTGRES_URL=" + db.URL(),
		"AETHER_RABBITMQ_STREAM_URL=" + testservices.RabbitMQ(t).URL(), "AETHER_JWT_KEY_FILE=" + key,
		`AETHER_STREAMS_PLACEMENT=[{prefix: metric}, {address: "ag::w::i::s"}]`,
	}
	db.Kill()
	g := begin(t, environ, "serve", "--migrate")
	g.stderr.wait(t, "waiting for the database")
	db.Start()
	g.await(t)
	succeed(t, append(environ, "AETHER_ADDR="+g.grpc), "send", "--as", "us::alice::cli", "--to", "ag::w::i::s", "--text", "x")
}
