package client_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"github.com/aether-gateway/gateway/client"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
)

// exampleTB stands in for the test that an example does not have. Whatever would
// fail the test ends the program.
type exampleTB struct {
	testing.TB
	cleanups []func()
}

func (*exampleTB) Helper()           {}
func (*exampleTB) Output() io.Writer { return io.Discard }
func (tb *exampleTB) Cleanup(f func()) {
	tb.cleanups = append(tb.cleanups, f)
}
func (*exampleTB) Fatal(args ...any)                 { panic(fmt.Sprint(args...)) }
func (*exampleTB) Errorf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
func (tb *exampleTB) TempDir() string {
	dir, err := os.MkdirTemp("", "aether-example-")
	if err != nil {
		panic(err)
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// startGateway starts an embedded gateway for an example.
func startGateway() (g *gatewaytest.Gateway, stop func()) {
	tb := &exampleTB{}
	g = gatewaytest.Start(tb)
	return g, func() {
		for _, f := range slices.Backward(tb.cleanups) {
			f()
		}
	}
}

// place is a gateway's address that may change while clients stay connected, as
// behind a name or a load balancer.
type place struct{ addr atomic.Pointer[string] }

func (p *place) move(addr string) { p.addr.Store(&addr) }

func (p *place) options(identity client.Identity, token string) client.Options {
	return client.Options{
		Addr: "passthrough:///localhost:1", Identity: identity, Token: token,
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", *p.addr.Load())
		})},
	}
}

func connect(t *testing.T, o client.Options) *client.Client {
	t.Helper()
	c, err := client.Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.WithoutCancel(t.Context())) })
	return c
}

func workspaces(kind, impl string, ws ...string) auth.Claims {
	return auth.Claims{Kind: kind, Impl: impl, Spec: "*", Workspaces: ws}
}
