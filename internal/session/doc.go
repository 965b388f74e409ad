// Package session is one connected principal: the handshake, the loop that
// receives its frames, the pump that sends what waits for it, and its orderly
// end.
//
// It knows a stream only as the small interface [Stream]; gRPC is the
// server's affair. It decides nothing about permission and stores nothing.
package session
