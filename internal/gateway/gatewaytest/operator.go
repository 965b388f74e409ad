package gatewaytest

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	"github.com/aether-gateway/gateway/internal/auth"
)

// OperatorToken returns an operator's token.
func (g *Gateway) OperatorToken(name string) string {
	return g.Token(auth.Claims{Kind: auth.KindOperator, Subject: name, Workspaces: []string{auth.AllWorkspaces}})
}

// Operator connects to the operators' service with a token; empty: without one.
func Operator(tb testing.TB, addr, token string) adminv1.AdminClient {
	tb.Helper()
	with := func(ctx context.Context) context.Context {
		if token == "" {
			return ctx
		}
		return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, c *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return call(with(ctx), method, req, reply, c, opts...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			return open(with(ctx), desc, c, method, opts...)
		}))
	check(tb, err)
	tb.Cleanup(func() { _ = conn.Close() })
	return adminv1.NewAdminClient(conn)
}
