package server

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/reflection"

	adminv1 "github.com/aether-gateway/gateway/gen/aether/admin/v1"
	aetherv1 "github.com/aether-gateway/gateway/gen/aether/v1"
	"github.com/aether-gateway/gateway/internal/auth"
	"github.com/aether-gateway/gateway/internal/session"
)

// Sessions serves the streams that the server takes.
type Sessions interface {
	Serve(session.Stream) error
}

// Options configure a [Server]. Sessions is required.
type Options struct {
	Sessions Sessions
	Logger   *slog.Logger
	// KeepaliveTime is how long a connection may be silent before it is
	// pinged, KeepaliveTimeout how long the answer may take; 10 s each by
	// default.
	KeepaliveTime, KeepaliveTimeout time.Duration
	// Reflection serves the gRPC reflection service.
	Reflection bool
	// Admin is the operators' service, behind Gate; nil serves none. Without a
	// gate nobody is let in.
	Admin adminv1.AdminServer
	Gate  Gate
	// TLS encrypts connections; nil serves in plain text.
	TLS *tls.Config
}

// maxReceive is the largest frame that gets a typed answer; a larger one ends
// its stream.
const maxReceive = 4 << 20

// readBuffer is what a connection keeps for reading, idle or not: a quarter of
// what is usual. It holds some twenty small frames, and large ones pass it by.
const readBuffer = 8 << 10

// minPing is how often clients may ping, a little more often than the 10 s
// that they are promised.
const minPing = 5 * time.Second

// maxStreams bounds the streams of a connection; those of a client are few, a
// proxy's many. Past it a client waits for one to end. A stream that has ended
// counts until the client has read its end: so one that never reads is bounded,
// too.
const maxStreams = 1024

// maxHeaders bounds the metadata of a call, of which a token has 8 KiB at most. It
// is kept as long as the stream, before anything is known of the client.
const maxHeaders = 64 << 10

// maxHandshake is how long a connection may take to begin.
const maxHandshake = 20 * time.Second

// Server is the gRPC server.
type Server struct {
	aetherv1.UnimplementedAetherGatewayServer
	o      Options
	grpc   *grpc.Server
	health *health.Server
}

// New returns a server that serves nothing yet.
func New(o Options) *Server {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.KeepaliveTime <= 0 {
		o.KeepaliveTime = 10 * time.Second
	}
	if o.KeepaliveTimeout <= 0 {
		o.KeepaliveTimeout = 10 * time.Second
	}
	s := &Server{o: o, health: health.NewServer()}
	transport := insecure.NewCredentials()
	if o.TLS != nil {
		transport = credentials.NewTLS(o.TLS)
	}
	s.grpc = grpc.NewServer(
		grpc.Creds(transport),
		grpc.ConnectionTimeout(maxHandshake),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxReceive),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ReadBufferSize(readBuffer),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: o.KeepaliveTime, Timeout: o.KeepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPing, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(s.unary),
		grpc.StreamInterceptor(s.streaming),
	)
	aetherv1.RegisterAetherGatewayServer(s.grpc, s)
	if o.Admin != nil {
		adminv1.RegisterAdminServer(s.grpc, o.Admin)
	}
	healthpb.RegisterHealthServer(s.grpc, s.health)
	s.SetServing(false)
	if o.Reflection {
		reflection.Register(s.grpc)
	}
	return s
}

// SetServing sets what the gRPC health service answers.
func (s *Server) SetServing(serving bool) {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if serving {
		state = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", state)
	s.health.SetServingStatus(aetherv1.AetherGateway_ServiceDesc.ServiceName, state)
}

// Serve takes connections until the server is stopped. It closes l.
func (s *Server) Serve(l net.Listener) error {
	if err := s.grpc.Serve(listener{l}); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}

// Stop stops taking connections and waits for the streams to end until ctx
// does; then it cuts them.
func (s *Server) Stop(ctx context.Context) {
	s.health.Shutdown()
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		s.grpc.Stop()
		<-done
	}
}

// Connect implements the AetherGateway service.
func (s *Server) Connect(st grpc.BidiStreamingServer[aetherv1.UpstreamMessage, aetherv1.DownstreamMessage]) error {
	return s.o.Sessions.Serve(&stream{st: st})
}

// stream is a Connect stream as the session package sees it.
type stream struct {
	st  grpc.BidiStreamingServer[aetherv1.UpstreamMessage, aetherv1.DownstreamMessage]
	out frame // of the pump
}

var _ session.Stream = (*stream)(nil)

func (s *stream) Context() context.Context { return s.st.Context() }

func (s *stream) Recv() (*aetherv1.UpstreamMessage, error) {
	var in inbound
	if err := s.st.RecvMsg(&in); err != nil {
		return nil, err
	}
	if in.malformed != nil {
		return nil, in.malformed
	}
	return in.frame, nil
}

func (s *stream) Send(b []byte) error {
	s.out.b = b
	return s.st.SendMsg(&s.out)
}

func (s *stream) Lost() bool {
	p, ok := peer.FromContext(s.Context())
	if !ok {
		return true
	}
	r, ok := p.Addr.(*remote)
	return !ok || r.gone.Load()
}

func (s *stream) Authorization() []string {
	return metadata.ValueFromIncomingContext(s.Context(), "authorization")
}

func (s *stream) Transport() auth.Transport { return transportOf(s.Context()) }

func (s *stream) Peer() string {
	if p, ok := peer.FromContext(s.Context()); ok {
		return p.Addr.String()
	}
	return "unknown"
}
