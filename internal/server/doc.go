// Package server is the gateway's gRPC side: it takes connections, wraps each
// Connect stream for the session package and carries encoded frames past the
// protobuf codec.
//
// It holds no state of its own about who is connected, and decides nothing.
package server
