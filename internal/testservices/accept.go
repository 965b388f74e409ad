package testservices

import (
	"context"
	"net"
	"sync"
	"testing"
)

// Accept serves each connection that comes to a listener, in a goroutine of its
// own, until the test ends. Then it closes the connections and waits for all
// of them to return.
func Accept(tb testing.TB, l net.Listener, serve func(net.Conn)) {
	tb.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			wg.Go(func() {
				defer stop()
				defer conn.Close()
				serve(conn)
			})
		}
	})
	tb.Cleanup(func() {
		cancel()
		l.Close()
		wg.Wait()
	})
}
