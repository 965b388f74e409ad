package session

import "github.com/aether-gateway/gateway/internal/wireerr"

// MalformedError is returned by [Stream.Recv] for a frame that is not of this
// protocol. The stream goes on.
type MalformedError struct {
	// RequestID is that of a send, if it could be read.
	RequestID string
	// Topic says that the target of a send is no UTF-8.
	Topic bool
}

func (e *MalformedError) Error() string { return "session: the frame is malformed" }

// refusal is what the client is told.
func (e *MalformedError) refusal() *wireerr.Error {
	if e.Topic {
		return wireerr.New(wireerr.InvalidTopic, "the address is no valid UTF-8")
	}
	return wireerr.New(wireerr.InvalidArgument, "the frame is malformed: it is no UpstreamMessage, or a text in it is no valid UTF-8")
}
