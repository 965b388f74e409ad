package server

import (
	"net"
	"sync/atomic"
)

// listener marks connections, so that a stream can tell a client that
// cancelled it from one whose connection is gone.
type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, remote: &remote{Addr: c.RemoteAddr()}}, nil
}

// conn notes its own end before the transport can tell the streams of it.
type conn struct {
	net.Conn
	remote *remote
}

// remote is a peer's address; gRPC hands it on with the context of each
// stream.
type remote struct {
	net.Addr
	gone atomic.Bool
}

func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil {
		c.remote.gone.Store(true)
	}
	return n, err
}

func (c *conn) Close() error {
	c.remote.gone.Store(true)
	return c.Conn.Close()
}
