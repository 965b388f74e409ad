package main

import (
	"strings"
	"testing"

	"github.com/aether-gateway/gateway/internal/testservices"
)

// The log says how it was written, whatever the database knows.
func TestServeWithAnotherPlacement(t *testing.T) {
	t.Parallel()
	key, db, mq := keyFile(t, "k.hs256"), testservices.Postgres(t), testservices.NewBroker(t)
	environ := []string{
		"AETHER_GRPC_ADDR=127.0.0.1:0", "AETHER_HTTP_ADDR=127.0.0.1:0", "AETHER_OPS_ADDR=off", "AETHER_POSTGRES_URL=" + db.URL(),
		"AETHER_RABBITMQ_STREAM_URL=" + mq.URL(), "AETHER_JWT_KEY_FILE=" + key, "AETHER_WORKSPACES_AUTO_CREATE=true",
		`AETHER_STREAMS_PLACEMENT=[{prefix: metric}, {address: "ag::w::i::s"}]`,
	}
	g := launch(t, environ, "serve", "--migrate")
	succeed(t, append(environ, "AETHER_ADDR="+g.grpc), "send", "--as", "us::alice::cli", "--to", "ag::w::i::s", "--text", "x")

	other := append(environ, "AETHER_POSTGRES_URL="+testservices.Postgres(t).URL(), "AETHER_STREAMS_PARTITIONS=3")
	if code, _, stderr := command(other, "", "serve", "--migrate"); code != 1 || !strings.Contains(stderr, "the messages were stored with 4 partitions and 2 placement rules") {
		t.Errorf("another placement: exit %d\n%s", code, stderr)
	}
}
