package server

import (
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/aether-gateway/gateway/internal/auth"
)

// forwarding are the metadata by which proxies name whom they serve.
var forwarding = []string{"x-forwarded-for", "forwarded", "x-real-ip"}

// transportOf is what is known of the connection that a call came by.
func transportOf(ctx context.Context) auth.Transport {
	var t auth.Transport
	p, ok := peer.FromContext(ctx)
	if !ok {
		return t
	}
	addr := p.Addr
	if r, ok := addr.(*remote); ok {
		addr = r.Addr
	}
	if tcp, ok := addr.(*net.TCPAddr); ok {
		t.Peer = tcp.AddrPort().Addr().Unmap()
	}
	for _, key := range forwarding {
		if len(metadata.ValueFromIncomingContext(ctx, key)) > 0 {
			t.Forwarded = true
		}
	}
	// Only what the handshake has verified: a certificate that was merely shown
	// proves nothing.
	if tls, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(tls.State.VerifiedChains) > 0 {
		t.Certificates = tls.State.PeerCertificates
	}
	return t
}
