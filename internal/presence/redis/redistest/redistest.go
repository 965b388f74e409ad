// Package redistest has what tests of gateways on Redis share.
package redistest

import (
	"context"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/aether-gateway/gateway/internal/testservices"
)

// aged notes what the first heartbeat of all notes in a Redis that it finds
// empty, but as of long ago.
const aged = `
local run = string.match(redis.call('INFO', 'server'), 'run_id:(%x+)')
redis.call('HSET', KEYS[1], 'id', ARGV[1], 'run', run, 'until', '0')`

// Aged starts a Redis as [testservices.Redis] does that has been a deployment's
// for a while: gateways serve as soon as they are there. In a new one they first
// wait for a TTL, in case that others, whom it does not know yet, hold leases;
// so they do in this one when it was killed and started again.
func Aged(tb testing.TB) *testservices.RedisServer {
	tb.Helper()
	server := testservices.Redis(tb)
	client := goredis.NewClient(&goredis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := client.Eval(ctx, aged, []string{"{aether}:0:inc"}, "aged").Err(); err != nil && err != goredis.Nil { //nolint:errorlint // a nil answer
		tb.Fatalf("redistest: %v", err)
	}
	return server
}
