package client

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// dialed are the addresses that a client has dialled.
type dialed struct {
	mu   sync.Mutex
	list []string
}

func (d *dialed) through(g *gateway) grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, addr string) (net.Conn, error) {
		d.mu.Lock()
		d.list = append(d.list, addr)
		d.mu.Unlock()
		return g.dial(ctx, addr)
	})
}

func (d *dialed) hosts() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := slices.Clone(d.list)
	for i, addr := range list {
		list[i], _, _ = strings.Cut(addr, ".")
	}
	return strings.Join(list, " ")
}

// A client of several gateways goes on at the next one with the session that it
// had.
func TestNextGateway(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		var d dialed
		o := g.options()
		o.Addr, o.Others = "passthrough:///a.test:1", []string{"passthrough:///b.test:1", "passthrough:///c.test:1"}
		o.AllowPlaintext = true
		o.DialOptions = []grpc.DialOption{d.through(g)}
		c, second := g.connect(o, func() *peer {
			g.accept().finish(status.Error(codes.ResourceExhausted, "too many"))
			return g.welcome()
		})
		first := c.Session().ID
		second.finish(status.Error(codes.Unavailable, "the gateway is shutting down"))
		third := g.welcome()
		if resume := third.init.GetResumeSessionId(); resume != first {
			t.Errorf("it resumes %q, was %q", resume, first)
		}
		if got := d.hosts(); got != "a b c" {
			t.Errorf("it dialled %s", got)
		}
		third.finish(status.Error(codes.Unavailable, "gone"))
		last := g.welcome()
		if got := d.hosts(); got != "a b c a" {
			t.Errorf("it dialled %s", got)
		}
		g.close(c, last)
	})
}

// One that was superseded does not fight for its identity, at whatever gateway.
func TestSupersededDoesNotComeBack(t *testing.T) {
	bubble(t, func(t *testing.T, g *gateway) {
		o := g.options()
		o.Others = []string{o.Addr}
		c, p := g.connect(o, g.welcome)
		p.finish(status.Error(codes.Aborted, "SUPERSEDED: the session was resumed by another connection"))
		<-c.Done()
		if CodeOf(c.Err()) != CodeDisconnected {
			t.Errorf("it ended with %v", c.Err())
		}
	})
}
