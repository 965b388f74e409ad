package gateway_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/gateway"
	"github.com/aether-gateway/gateway/internal/gateway/gatewaytest"
	"github.com/aether-gateway/gateway/internal/tlsfile"
	"github.com/aether-gateway/gateway/internal/tlsfile/tlstest"
)

// verifying starts the gateway with a verifier that is changed by change.
func verifying(t *testing.T, change func(*auth.Options)) gatewaytest.Option {
	t.Helper()
	key, err := auth.NewKey("test", []byte(gatewaytest.Secret))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := auth.NewKeys(key)
	if err != nil {
		t.Fatal(err)
	}
	o := auth.Options{Keys: keys}
	change(&o)
	v, err := auth.NewVerifier(o)
	if err != nil {
		t.Fatal(err)
	}
	return func(o *gateway.Options) { o.Verifier = v }
}

// login connects over a connection, says who it is and leaves again. The error is
// what the gateway answered.
func login(ctx context.Context, conn *grpc.ClientConn, token string, init *aetherv1.InitConnection) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	st, err := aetherv1.NewAetherGatewayClient(conn).Connect(ctx)
	if err != nil {
		return err
	}
	if token != "" {
		init.Credentials = map[string]string{"authorization": "Bearer " + token}
	}
	if err := st.Send(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Init{Init: init}}); err != nil {
		_, err = st.Recv()
		return err
	}
	if _, err := st.Recv(); err != nil {
		return err
	}
	_ = st.CloseSend()
	for err == nil {
		_, err = st.Recv()
	}
	return nil
}

// dialAs makes a connection.
func dialAs(t *testing.T, addr string, transport credentials.TransportCredentials, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, append(more, grpc.WithTransportCredentials(transport))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// tlsFiles are a server's files in a directory of the test, and the server.
func tlsFiles(t *testing.T, servers, clients *tlstest.Authority) (dir string, s *tlsfile.Server) {
	t.Helper()
	dir = t.TempDir()
	cert, key := servers.Issue("one", x509.ExtKeyUsageServerAuth)
	putFile(t, dir, "cert.pem", cert)
	putFile(t, dir, "key.pem", key)
	putFile(t, dir, "clients.pem", clients.PEM())
	s, err := tlsfile.Open(nil, tlsfile.Files{
		Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem"), ClientCA: filepath.Join(dir, "clients.pem"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return dir, s
}

func putFile(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestTLS: the gRPC port serves TLS, a new certificate counts for new connections
// and leaves streams alone, and a client certificate stands in for a credential
// only by an entry of the table.
func TestTLS(t *testing.T) {
	t.Parallel()
	servers, clients := tlstest.New(t, "servers"), tlstest.New(t, "clients")
	dir, files := tlsFiles(t, servers, clients)
	table, err := auth.NewCertificates(files.VerifyClient, auth.CertificateEntry{
		DNS: "echo.example", Claims: auth.Claims{Kind: auth.KindAgent, Workspaces: []string{"w"}, Impl: "echo", Spec: "*"},
	})
	if err != nil {
		t.Fatal(err)
	}
	g := gatewaytest.Start(t, verifying(t, func(o *auth.Options) { o.Certificates = table }), func(o *gateway.Options) { o.TLS = files.Config("h2") })

	// A stream that lasts through everything.
	transport := func(own ...tls.Certificate) credentials.TransportCredentials {
		return credentials.NewTLS(&tls.Config{RootCAs: servers.Pool(), Certificates: own})
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lasting, err := aetherv1.NewAetherGatewayClient(dialAs(t, g.Addr, transport(clients.Client("echo")))).Connect(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := lasting.Send(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Init{Init: gatewaytest.AgentInit("w", "echo", "lasting")}}); err != nil {
		t.Fatal(err)
	}
	if m, err := lasting.Recv(); err != nil || m.GetConnectionAck() == nil {
		t.Fatalf("%v, %v", m, err)
	}

	token := g.AgentToken("w", "echo")
	for name, c := range map[string]struct {
		own   []tls.Certificate
		token string
		init  *aetherv1.InitConnection
		want  codes.Code
	}{
		"token":                        {nil, token, gatewaytest.AgentInit("w", "echo", "1"), codes.OK},
		"nothing":                      {nil, "", gatewaytest.AgentInit("w", "echo", "2"), codes.Unauthenticated},
		"certificate":                  {[]tls.Certificate{clients.Client("echo")}, "", gatewaytest.AgentInit("w", "echo", "3"), codes.OK},
		"certificate without an entry": {[]tls.Certificate{clients.Client("other")}, "", gatewaytest.AgentInit("w", "echo", "4"), codes.Unauthenticated},
		"certificate, not covered":     {[]tls.Certificate{clients.Client("echo")}, "", gatewaytest.AgentInit("v", "echo", "5"), codes.PermissionDenied},
		"token and certificate":        {[]tls.Certificate{clients.Client("other")}, token, gatewaytest.AgentInit("w", "echo", "6"), codes.OK},
		"bad token and certificate":    {[]tls.Certificate{clients.Client("echo")}, token + "x", gatewaytest.AgentInit("w", "echo", "7"), codes.Unauthenticated},
	} {
		if err := login(ctx, dialAs(t, g.Addr, transport(c.own...)), c.token, c.init); status.Code(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	if err := login(ctx, dialAs(t, g.Addr, insecure.NewCredentials()), token, gatewaytest.AgentInit("w", "echo", "8")); status.Code(err) != codes.Unavailable {
		t.Errorf("plain text: %v", err)
	}

	old := dialAs(t, g.Addr, transport(clients.Client("echo")))
	if err := login(ctx, old, "", gatewaytest.AgentInit("w", "echo", "9")); err != nil {
		t.Fatal(err)
	}
	next := tlstest.New(t, "next servers")
	cert, key := next.Issue("two", x509.ExtKeyUsageServerAuth)
	putFile(t, dir, "cert.pem", cert)
	putFile(t, dir, "key.pem", key)
	putFile(t, dir, "clients.pem", next.PEM())
	files.Look()
	fresh := credentials.NewTLS(&tls.Config{RootCAs: next.Pool()})
	if err := login(ctx, dialAs(t, g.Addr, fresh), token, gatewaytest.AgentInit("w", "echo", "10")); err != nil {
		t.Errorf("the new certificate is not in use: %v", err)
	}
	if err := lasting.Send(&aetherv1.UpstreamMessage{Payload: &aetherv1.UpstreamMessage_Heartbeat{Heartbeat: &aetherv1.Heartbeat{}}}); err != nil {
		t.Fatal(err)
	}
	for {
		m, err := lasting.Recv()
		if err != nil {
			t.Fatalf("a stream ended with the old certificate: %v", err)
		}
		if m.GetHeartbeat() != nil {
			break
		}
	}
	// The authority of its certificate has been dropped since its handshake; a
	// session ends as soon as that is known.
	g.Sessions.Recheck()
	for err = nil; err == nil; {
		_, err = lasting.Recv()
	}
	if status.Code(err) != codes.Unauthenticated {
		t.Errorf("a session of a dropped authority: %v", err)
	}
	if err := login(ctx, old, "", gatewaytest.AgentInit("w", "echo", "11")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a dropped authority: %v", err)
	}
}

// TestAnonymous: from this machine agents, tasks and users need no credential if
// the operator said so, and others do; what a proxy passes on is not from here.
func TestAnonymous(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, verifying(t, func(o *auth.Options) { o.Anonymous = true }))
	conn := dialAs(t, g.Addr, insecure.NewCredentials())
	ctx := context.Background()
	user := gatewaytest.UserInit("u", "1")
	user.Workspace = "w"
	service := &aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Service{Service: &aetherv1.ServiceIdentity{Implementation: "i", Specifier: "s"}}}
	task := &aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Task{Task: &aetherv1.TaskIdentity{Workspace: "w", Implementation: "i"}}}
	for name, c := range map[string]struct {
		init *aetherv1.InitConnection
		want codes.Code
	}{
		"agent": {gatewaytest.AgentInit("w", "i", "s"), codes.OK}, "user": {user, codes.OK}, "task": {task, codes.OK}, "service": {service, codes.Unauthenticated},
	} {
		if err := login(ctx, conn, "", c.init); status.Code(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, key := range []string{"x-forwarded-for", "forwarded", "x-real-ip"} {
		through := metadata.AppendToOutgoingContext(ctx, key, "192.0.2.1")
		if err := login(through, conn, "", gatewaytest.AgentInit("w", "i", "s2")); status.Code(err) != codes.Unauthenticated {
			t.Errorf("through a proxy: %v", err)
		}
	}
	closed := gatewaytest.Start(t)
	if err := login(ctx, dialAs(t, closed.Addr, insecure.NewCredentials()), "", gatewaytest.AgentInit("w", "i", "s")); status.Code(err) != codes.Unauthenticated {
		t.Errorf("without the option: %v", err)
	}
}

// from dials from another address of this machine.
func from(host string) grpc.DialOption {
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	return grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) { return d.DialContext(ctx, "tcp", addr) })
}

// Test35TenThousandFailedLogins: one address fails 10,000 times, also in the name of
// somebody else. It is told to come back later; others, that somebody among them,
// and good credentials from the address that a load balancer shares get in
// throughout. Unless AETHER_TEST_LONG=1 it fails 2,500 times.
func Test35TenThousandFailedLogins(t *testing.T) {
	t.Parallel()
	const crowd = 8
	attempts := 2500
	if os.Getenv("AETHER_TEST_LONG") != "" {
		attempts = 10_000
	}
	failures := auth.NewFailures(auth.FailuresOptions{})
	g := gatewaytest.Start(t, func(o *gateway.Options) { o.Failures, o.AdmissionRate = failures, 500 })
	good := g.AgentToken("w", "echo")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	var attack, others sync.WaitGroup
	var mu sync.Mutex
	answers := map[codes.Code]int{}
	left := make(chan struct{}, attempts)
	for range attempts {
		left <- struct{}{}
	}
	close(left)
	for range crowd {
		conn := dialAs(t, g.Addr, insecure.NewCredentials(), from("127.0.0.2"))
		attack.Go(func() {
			for range left {
				err := login(ctx, conn, good+"x", gatewaytest.AgentInit("w", "echo", "victim"))
				mu.Lock()
				answers[status.Code(err)]++
				mu.Unlock()
				if status.Code(err) == codes.ResourceExhausted && hinted(err) != nil {
					t.Error(hinted(err))
				}
			}
		})
	}
	stop := make(chan struct{})
	counts := make([]int, 2)
	for i, host := range []string{"127.0.0.1", "127.0.0.3"} {
		conn := dialAs(t, g.Addr, insecure.NewCredentials(), from(host))
		others.Go(func() {
			for {
				// The same identity that the attack claims, and one of its own.
				who := []string{"victim", fmt.Sprint("other", i)}[i]
				if err := login(ctx, conn, good, gatewaytest.AgentInit("w", "echo", who)); err != nil {
					t.Errorf("%s from %s: %v", who, host, err)
					return
				}
				counts[i]++
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	attack.Wait()
	close(stop)
	others.Wait()
	t.Logf("answers %v; others got in %v times", answers, counts)
	if n := answers[codes.Unauthenticated]; n < 20 || n > attempts/10 || n+answers[codes.ResourceExhausted] != attempts {
		t.Errorf("answers: %v", answers)
	}
	if slowed := g.Sessions.Stats().Slowed.Load(); slowed != uint64(answers[codes.ResourceExhausted]) {
		t.Errorf("%d counted", slowed)
	}

	// Behind one address with the attack, somebody who succeeds once goes on.
	shared := dialAs(t, g.Addr, insecure.NewCredentials(), from("127.0.0.2"))
	deadline := time.Now().Add(time.Minute)
	for login(ctx, shared, good, gatewaytest.AgentInit("w", "echo", "behind")) != nil {
		if time.Now().After(deadline) {
			t.Fatal("a good credential does not get in from a slowed address")
		}
	}
	for i := range 100 {
		if err := login(ctx, shared, good+"x", gatewaytest.AgentInit("w", "echo", "victim")); status.Code(err) != codes.ResourceExhausted && status.Code(err) != codes.Unauthenticated {
			t.Fatal(err)
		}
		if err := login(ctx, shared, good, gatewaytest.AgentInit("w", "echo", "behind")); err != nil {
			t.Fatalf("attempt %d: %v", i, err)
		}
	}
}

// TestOperatorsAreSlowed: bad credentials for the operators' service count like
// others, and a good one gets in.
func TestOperatorsAreSlowed(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t, func(o *gateway.Options) { o.Failures = auth.NewFailures(auth.FailuresOptions{Rate: 0.1}) })
	operator, agent := g.Token(auth.Claims{Kind: auth.KindOperator}), g.AgentToken("w", "i")
	c := adminv1.NewAdminClient(dialAs(t, g.Addr, insecure.NewCredentials()))
	call := func(token string) error {
		ctx := context.Background()
		if token != "" {
			ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
		}
		_, err := c.ServerInfo(ctx, &adminv1.ServerInfoRequest{})
		return err
	}
	if err := call(operator); err != nil {
		t.Fatal(err)
	}
	if err := call(""); status.Code(err) != codes.Unauthenticated {
		t.Error(err)
	}
	if err := call(agent); status.Code(err) != codes.PermissionDenied {
		t.Error(err)
	}
	for range 10 {
		_ = call(operator + "x")
	}
	if err := call(operator + "x"); status.Code(err) != codes.ResourceExhausted || hinted(err) != nil {
		t.Error(err)
	}
	if err := call(operator); err != nil {
		t.Errorf("a good credential from a slowed address: %v", err)
	}
}
