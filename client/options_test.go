package client

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
)

func TestOptionsReportEverythingAtOnce(t *testing.T) {
	t.Parallel()
	_, err := Connect(t.Context(), Options{
		Identity: Agent("demo", "", "1"), Workspace: "w", Token: "a", APIKey: "b", ExplicitAcks: true,
		MaxUnacked: -1, MaxPending: 5000, ConnectTimeout: -1, MinBackoff: time.Hour, MaxBackoff: time.Second,
	})
	if CodeOf(err) != CodeInvalidArgument {
		t.Fatalf("error: %v", err)
	}
	for _, want := range []string{
		"Addr", "its implementation is empty", "Workspace", "more than one of", "ExplicitAcks", "MaxUnacked", "MaxPending", "ConnectTimeout", "MinBackoff",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("does not name %s: %v", want, err)
		}
	}
}

func TestAddr(t *testing.T) {
	t.Parallel()
	for addr, want := range map[string]string{
		"127.0.0.1:50051": "", "gateway.example:1": "", "[::1]:1": "", "localhost:65535": "", "dns:1": "",
		"unix:///run/x": "", "unix:x": "", "unix-abstract:x": "", "dns:///host:1": "", "dns:host:1": "", "passthrough:///x": "",
		"":                        "Addr is empty",
		"localhost":               "such as localhost:50051",
		"gateway.example":         "such as gateway.example:50051",
		"http://127.0.0.1:50051":  "such as 127.0.0.1:50051",
		"https://gateway.example": "such as gateway.example:50051",
		"grpc://h:1/":             "such as h:1",
		"http://":                 "such as 127.0.0.1:50051",
		"::1":                     "brackets",
		"h:1:2":                   "brackets",
		"h/path":                  "not host:port",
		":50051":                  "no host",
		"h:":                      "port is not a number",
		"h:http":                  "port is not a number",
		"h:0":                     "port is not a number",
		"h:65536":                 "port is not a number",
	} {
		_, err := newClient(Options{Addr: addr, Identity: User("u", "w")})
		if want == "" && err != nil || want != "" && (CodeOf(err) != CodeInvalidArgument || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v", addr, err)
		}
	}
	own := Options{Addr: "own://x", Identity: User("u", "w"), DialOptions: []grpc.DialOption{grpc.WithUserAgent("x")}}
	if _, err := newClient(own); err != nil { // a resolver may be among them
		t.Error(err)
	}
}

// Every failure is an *Error, and the context's end is in its chain.
func TestContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		c, p := g.connect(g.options(), g.welcome)
		pending := sendAsync(t, c, "ag::demo::x::1", "")
		s := p.nextSend()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for name, call := range map[string]func() error{
			"Receive": func() error { _, err := c.Receive(ctx); return err },
			"Wait":    func() error { _, err := pending.Wait(ctx); return err },
			"Config":  func() error { _, err := c.Config(ctx); return err },
		} {
			err := call()
			if CodeOf(err) != CodeGaveUp || !errors.Is(err, context.Canceled) || NotStored(err) || SafeToRetry(err) {
				t.Errorf("%s: %v", name, err)
			}
		}
		p.receipt(s)
		if got := outcomeOf(t, pending); got.err != nil {
			t.Errorf("%+v", got)
		}
		g.close(c, p)
	})
}

func TestIdentities(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		id            Identity
		name, address string
		init          *aetherv1.InitConnection
	}{
		{Agent("w", "i", "s"), "ag::w::i::s", "ag::w::i::s", &aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Agent{Agent: &aetherv1.AgentIdentity{Workspace: "w", Implementation: "i", Specifier: "s"}}}},
		{UniqueTask("w", "i", "s"), "tu::w::i::s", "tu::w::i::s", &aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Task{Task: &aetherv1.TaskIdentity{Workspace: "w", Implementation: "i", UniqueSpecifier: "s"}}}},
		{Task("w", "i"), "ta::w::i", "", &aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Task{Task: &aetherv1.TaskIdentity{Workspace: "w", Implementation: "i"}}}},
		{User("u", "w"), "us::u::w", "us::u::w", &aetherv1.InitConnection{Identity: &aetherv1.InitConnection_User{User: &aetherv1.UserIdentity{UserId: "u", WindowId: "w"}}}},
		{WorkflowEngine("x"), "wfe::x", "", &aetherv1.InitConnection{Identity: &aetherv1.InitConnection_WorkflowEngine{WorkflowEngine: &aetherv1.WorkflowEngineIdentity{InstanceId: "x"}}}},
		{MetricsBridge("x"), "metrics::x", "", &aetherv1.InitConnection{Identity: &aetherv1.InitConnection_MetricsBridge{MetricsBridge: &aetherv1.MetricsBridgeIdentity{InstanceId: "x"}}}},
		{Orchestrator("i", "s", "p", "q"), "orc::i::s", "", &aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Orchestrator{Orchestrator: &aetherv1.OrchestratorIdentity{Implementation: "i", Specifier: "s", SupportedProfiles: []string{"p", "q"}}}}},
		{Service("i", "s"), "sv::i::s", "sv::i::s", &aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Service{Service: &aetherv1.ServiceIdentity{Implementation: "i", Specifier: "s"}}}},
		{Bridge("i", "s"), "br::i::s", "br::i::s", &aetherv1.InitConnection{Identity: &aetherv1.InitConnection_Bridge{Bridge: &aetherv1.BridgeIdentity{Implementation: "i", Specifier: "s"}}}},
	} {
		if test.id.String() != test.name || test.id.Address() != test.address {
			t.Errorf("%s, %q", test.id, test.id.Address())
		}
		if err := test.id.check(); err != nil {
			t.Errorf("%s: %v", test.id, err)
		}
		init := &aetherv1.InitConnection{}
		test.id.claim(init)
		if !proto.Equal(init, test.init) {
			t.Errorf("%s: %v", test.id, init)
		}
	}
	for _, id := range []Identity{
		{},
		Agent("", "i", "s"), Agent("w", "i", ""), UniqueTask("w", "i", ""), Task("w", ""), User("", "w"), User("u", ""),
		WorkflowEngine(""), MetricsBridge(""), Orchestrator("", "s"), Service("i", ""), Bridge("", ""), Agent("\xff", "i", "s"),
	} {
		if id.check() == nil {
			t.Errorf("%+v is accepted", id)
		}
	}
}

func TestCredentials(t *testing.T) {
	for key, test := range map[string]struct {
		set  func(*Options)
		want string
	}{
		"authorization": {func(o *Options) { o.Token = "x" }, "Bearer x"},
		"x-api-key":     {func(o *Options) { o.APIKey = "x" }, "x"},
		"token":         {func(o *Options) { o.TaskToken = "x" }, "x"},
		"":              {func(*Options) {}, ""},
	} {
		t.Run(key, func(t *testing.T) {
			bubble(t, func(t *testing.T, g *gateway) {
				o := g.options()
				o.Token = ""
				test.set(&o)
				c, p := g.connect(o, g.welcome)
				if got := p.init.GetCredentials(); got[key] != test.want || len(got) > 1 {
					t.Errorf("credentials: %v", got)
				}
				g.close(c, p)
			})
		})
	}
}

// A credential must not leave the machine in the clear unless that was asked for.
func TestPlaintextStaysOnTheMachine(t *testing.T) {
	t.Parallel()
	for target, local := range map[string]bool{
		"127.0.0.1:50051": true, "localhost:1": true, "[::1]:1": true, "unix:///run/x": true, "unix:x": true,
		"dns:///localhost:1": true, "passthrough:///127.9.9.9:1": true,
		"10.0.0.1:1": false, "example.com:1": false, "localhost.example.com:1": false, "0.0.0.0:1": false, "": false,
		"dns:///example.com:1": false, "127.0.0.1.example.com:1": false, "[::]:1": false, "dns://127.0.0.1/example.com:1": false,
	} {
		if got := loopback(target); got != local {
			t.Errorf("%s: %v", target, got)
		}
	}

	// On the wire: the first bytes of a TLS client, or of a plaintext one.
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer lis.Close()
	first := make(chan byte, 3)
	go func() {
		for {
			conn, err := lis.Accept()
			if err != nil {
				return
			}
			var b [1]byte
			if _, err := conn.Read(b[:]); err == nil {
				first <- b[0]
			}
			conn.Close()
		}
	}()
	for name, test := range map[string]struct {
		set  func(*Options)
		want byte
	}{
		"elsewhere": {func(*Options) {}, 22},
		"allowed":   {func(o *Options) { o.AllowPlaintext = true }, 'P'},
		"TLS on loopback": {func(o *Options) {
			o.Addr, o.TLS = "passthrough:///localhost:1", &tls.Config{MinVersion: tls.VersionTLS12}
		}, 22},
	} {
		o := Options{Addr: "passthrough:///gateway.example:443", Identity: User("u", "w"), MinBackoff: time.Hour, MaxBackoff: time.Hour}
		o.DialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", lis.Addr().String())
		})}
		test.set(&o)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := Connect(ctx, o)
			done <- err
		}()
		if got := <-first; got != test.want {
			t.Errorf("%s: first byte %d", name, got)
		}
		cancel()
		if err := <-done; err == nil {
			t.Errorf("%s: connected", name)
		}
	}
}

func TestBackoff(t *testing.T) {
	t.Parallel()
	b := backoff{least: 100 * time.Millisecond, most: 2 * time.Second}
	seen := make(map[time.Duration]bool)
	for range 50 {
		b.reset()
		for limit := 100 * time.Millisecond; limit < 10*time.Second; limit *= 2 {
			d := b.next(0)
			if d < 0 || d > min(limit, b.most) {
				t.Fatalf("%s after a limit of %s", d, limit)
			}
			seen[d] = true
		}
	}
	if len(seen) < 100 {
		t.Errorf("only %d different pauses", len(seen))
	}
	if d := b.next(time.Minute); d != time.Minute {
		t.Errorf("%s instead of the hint", d)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if !pause(ctx, 999*time.Millisecond) || pause(ctx, time.Hour) {
			t.Error("pause")
		}
	})
}

func TestErrors(t *testing.T) {
	t.Parallel()
	for _, err := range []error{nil, errors.New("x"), context.Canceled} {
		if CodeOf(err) != "" || NotStored(err) || SafeToRetry(err) || IsPermission(err) || IsUnauthenticated(err) || IsDuplicateIdentity(err) {
			t.Errorf("%v", err)
		}
	}
	if Drop(nil) != nil {
		t.Error("Drop(nil)")
	}
	cause := errors.New("x")
	if err := Drop(cause); !errors.Is(err, cause) || err.Error() != "x" || !isDrop(err) || isDrop(cause) {
		t.Error("Drop")
	}
	if got := reasonOf(strings.Repeat("é", 300)); len(got) != 256 || strings.ContainsRune(got, '\uFFFD') {
		t.Errorf("reason of %d bytes", len(got))
	}
	if got := reasonOf("a" + strings.Repeat("é", 300)); len(got) != 255 {
		t.Errorf("reason of %d bytes", len(got))
	}
	if milliseconds(-1) != 0 || milliseconds(1500) != 1500*time.Millisecond || milliseconds(math.MaxInt64) <= 0 {
		t.Error("milliseconds")
	}
	if closedError().Error() != "client: CLIENT_CLOSED: client is closed" {
		t.Errorf("%v", closedError())
	}
}

func TestTypeNames(t *testing.T) {
	t.Parallel()
	for typ, want := range map[Type]string{
		Chat: "chat", Control: "control", ToolCall: "tool_call", Event: "event", Metric: "metric", Opaque: "opaque", 0: "opaque",
	} {
		if typ.String() != want {
			t.Errorf("%d: %s", typ, typ)
		}
	}
}
