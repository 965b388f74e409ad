package scripts

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
)

// Through the balancer one connection takes as many streams as at a gateway: it
// took a hundred, and the next one waited without a word. And it says that it is
// there.
func TestBalancerTakesManyStreams(t *testing.T) {
	t.Parallel()
	const streams = 200 // of the 1,024 that a gateway takes
	port := freePorts(t, 4)
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", port+i) }
	listen := func(addr string) net.Listener {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	var unnamed atomic.Int64
	server := grpc.NewServer(grpc.StreamInterceptor(func(srv any, st grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
		if len(metadata.ValueFromIncomingContext(st.Context(), "x-forwarded-for")) == 0 {
			unnamed.Add(1)
		}
		return next(srv, st)
	}))
	healthpb.RegisterHealthServer(server, health.NewServer())
	ready := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), ReadHeaderTimeout: time.Minute}
	rpc, web := listen(at(2)), listen(at(3))
	go func() { _ = server.Serve(rpc) }()
	go func() { _ = ready.Serve(web) }()
	t.Cleanup(func() {
		server.Stop()
		_ = ready.Close()
	})
	balancer := exec.Command("haproxy", "-db", "-f", "../deploy/haproxy.cfg")
	balancer.Env = append(os.Environ(), "BALANCER_GRPC="+at(0), "BALANCER_HTTP="+at(1))
	for _, g := range []string{"1", "2"} {
		balancer.Env = append(balancer.Env, "GATEWAY_"+g+"_HOST=127.0.0.1",
			fmt.Sprintf("GATEWAY_%s_GRPC_PORT=%d", g, port+2), fmt.Sprintf("GATEWAY_%s_HTTP_PORT=%d", g, port+3))
	}
	balancer.Stdout, balancer.Stderr = t.Output(), t.Output()
	if err := balancer.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = balancer.Process.Kill()
		_ = balancer.Wait()
	})
	conn, err := grpc.NewClient(at(0), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	for i := range streams {
		st, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = st.Recv()
		}
		if err != nil {
			t.Fatalf("stream %d: %v", i+1, err)
		}
	}
	if n := unnamed.Load(); n > 0 {
		t.Errorf("of %d streams the gateway cannot see that a balancer passes them on: without a credential, they would be ones of its own machine", n)
	}
}
